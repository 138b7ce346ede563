// Command coredns is CoreDNS with only the plugins that a cluster's own names need.
//
// CoreDNS' own main brings in every plugin, and with them the client libraries of several clouds: three minutes of
// compiling. The directives below are the whole of what a Corefile may say here, in the order of CoreDNS' plugin.cfg,
// which is the order in which a query passes through them.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	dnsserver.Directives = []string{
		"bind",
		"health",
		"ready",
		"errors",
		"log",
		"cache",
		"loadbalance",
		"template",
		"kubernetes",
		"forward",
	}
	coremain.Run()
}
