// Enforces NetworkPolicies on the node's network namespace that it runs in, until it is ended.
//
// The verdicts are those of sigs.k8s.io/kube-network-policies, a SIG Network project. That project's
// own rules use nftables' "queue" expression, which small kernels leave out (CONFIG_NFT_QUEUE); the
// older xtables target of the same effect is nearly always there, so the rule here uses that.
//
// Usage: policy KUBECONFIG NODE. Prints "ready" when every new connection between pods is judged, and ends
// when its standard input does: it does not outlive whoever started it.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	nfqueue "github.com/florianl/go-nfqueue/v2"
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"github.com/mdlayher/netlink"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/network"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
	"sigs.k8s.io/kube-network-policies/pkg/podinfo"
)

const (
	queueNumber = 100
	tableName   = "localkube-policy"
	// Revision 3 of the kernel's NFQUEUE target: first queue, number of queues, flags.
	targetRevision = 3
	// Without a reader packets pass: should this program be killed, the cluster goes on.
	bypass = 1
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: policy KUBECONFIG NODE")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		// The end of the input is the news, and reading has no other.
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "policy:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, node string) error {
	engine, err := newEngine(ctx, kubeconfig, node)
	if err != nil {
		return err
	}
	queue, err := judge(ctx, engine)
	if err != nil {
		return fmt.Errorf("cannot read queue %d: %w", queueNumber, err)
	}
	defer queue.Close()
	if err := divert(); err != nil {
		return fmt.Errorf("cannot send new connections to queue %d: %w", queueNumber, err)
	}
	fmt.Println("ready")
	<-ctx.Done()
	return remove()
}

// newEngine returns once it knows every pod, namespace and policy of the cluster.
func newEngine(ctx context.Context, kubeconfig, node string) (*networkpolicy.PolicyEngine, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods()
	namespaces := factory.Core().V1().Namespaces()
	policies := factory.Networking().V1().NetworkPolicies()
	resolver, err := podinfo.NewInformerResolver(pods.Informer())
	if err != nil {
		return nil, err
	}
	provider := podinfo.NewInformerProvider(pods, namespaces, nil, []podinfo.IPResolver{resolver})
	standard := networkpolicy.NewStandardNetworkPolicy(node, namespaces, pods, policies)
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("cannot list %s", kind)
		}
	}
	return networkpolicy.NewPolicyEngine(provider, []api.PolicyEvaluator{standard}), nil
}

// judge answers the kernel for each packet of the queue. What cannot be judged is dropped.
func judge(ctx context.Context, engine *networkpolicy.PolicyEngine) (*nfqueue.Nfqueue, error) {
	queue, err := nfqueue.Open(&nfqueue.Config{
		NfQueue:      queueNumber,
		MaxPacketLen: 128,
		MaxQueueLen:  1024,
		Copymode:     nfqueue.NfQnlCopyPacket,
		WriteTimeout: 100 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	answer := func(attribute nfqueue.Attribute) int {
		verdict := nfqueue.NfDrop
		packet, err := network.ParsePacket(*attribute.Payload)
		if err == nil {
			var allowed bool
			if allowed, err = engine.EvaluatePacket(ctx, &packet); allowed && err == nil {
				verdict = nfqueue.NfAccept
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "policy: dropped a packet that cannot be judged:", err)
		}
		if err := queue.SetVerdict(*attribute.PacketID, verdict); err != nil {
			fmt.Fprintln(os.Stderr, "policy: cannot answer the kernel:", err)
		}
		return 0
	}
	return queue, queue.RegisterWithErrorFunc(ctx, answer, func(err error) int {
		if failure, ok := err.(*netlink.OpError); !ok || !(failure.Timeout() || failure.Temporary()) {
			fmt.Fprintln(os.Stderr, "policy: reading the queue:", err)
		}
		return 0
	})
}

// divert sends the first packet of each forwarded connection to the queue.
func divert() error {
	connection, err := nftables.New()
	if err != nil {
		return err
	}
	table := connection.AddTable(&nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4})
	connection.FlushTable(table)
	chain := connection.AddChain(&nftables.Chain{
		Name:     "forward",
		Table:    table,
		Type:     nftables.ChainTypeFilter,
		Hooknum:  nftables.ChainHookForward,
		Priority: nftables.ChainPriorityFilter,
	})
	var fields []byte
	for _, field := range []uint16{queueNumber, 1, bypass} {
		fields = binary.NativeEndian.AppendUint16(fields, field)
	}
	info := xt.Unknown(fields)
	connection.AddRule(&nftables.Rule{
		Table: table,
		Chain: chain,
		Exprs: []expr.Any{
			&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
			&expr.Bitwise{
				SourceRegister: 1, DestRegister: 1, Len: 4,
				Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitNEW), Xor: make([]byte, 4),
			},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
			&expr.Target{Name: "NFQUEUE", Rev: targetRevision, Info: &info},
		},
	})
	return connection.Flush()
}

func remove() error {
	connection, err := nftables.New()
	if err != nil {
		return err
	}
	connection.DelTable(&nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4})
	return connection.Flush()
}
