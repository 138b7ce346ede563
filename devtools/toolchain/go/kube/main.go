// Command kube is every Kubernetes program that one node needs, in one binary.
//
// It is called as `kube COMPONENT [FLAGS]`, or through a link named after the component. One binary links the
// libraries that all of them share once, which is most of the build time and most of the size.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components maps a name to a program that runs to its end and gives its exit status.
var components = map[string]func() int{
	"etcd":                    runEtcd,
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-proxy":              func() int { return cli.Run(proxy.NewProxyCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubectl":                 runKubectl,
	"kubelet":                 func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
}

func main() {
	name := filepath.Base(os.Args[0])
	if _, linked := components[name]; !linked {
		if len(os.Args) < 2 {
			fail("which component?")
		}
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	run, known := components[name]
	if !known {
		fail(fmt.Sprintf("%q is no component", name))
	}
	os.Exit(run())
}

func fail(what string) {
	names := make([]string, 0, len(components))
	for name := range components {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Fprintf(os.Stderr, "kube: %s; expected one of: %s\n", what, strings.Join(names, ", "))
	os.Exit(2)
}

func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}

// runKubectl follows kubectl's own main: the verbosity is needed before its flags are parsed, and it prints an error
// without the usage text.
func runKubectl() int {
	logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}
