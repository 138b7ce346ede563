// Argo CD's application controller and its repository server, by the name of the program, as in its own program; else the
// Redis server in Go that it has for its command line. Its API server, its command line and the rest are left out: they
// would take longer to build, and tests need none of them.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/alicebob/miniredis/v2"
	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	repositories "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	"github.com/argoproj/argo-cd/v3/common"
)

func main() {
	var err error
	switch filepath.Base(os.Args[0]) {
	case common.CommandApplicationController:
		err = controller.NewCommand().Execute()
	case common.CommandRepoServer:
		err = repositories.NewCommand().Execute()
	default:
		err = serveRedis(os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serveRedis(address string) error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr(address); err != nil {
		return err
	}
	defer server.Close()
	fmt.Println("Ready to accept connections")
	<-ended
	return nil
}
