// Command everynode is the whole system: control plane, node agent, local
// clusters and kubectl.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/everynode/everynode/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.ExecuteAs(ctx, os.Args[0], os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
