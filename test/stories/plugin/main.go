// Command plugin is what the stories run in place of published programs that extend a node:
//
//	plugin device --resource NAME --count N   a device plugin, whose devices are all /dev/null under other names
//	plugin driver --drivername NAME           a storage driver, whose volumes hold what it was told
//	plugin registrar --csi-address SOCKET     its registrar
//	plugin resources                          prints who has which device
//	plugin make|remove FILE, list FOLDER      for kubectl exec
//
// It is built and put into an image by the tests that need it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// lookEvery is how often the program looks for changes in folders.
const lookEvery = 100 * time.Millisecond

var roles = map[string]func(ctx context.Context, args []string) error{
	"device": device, "driver": driver, "registrar": registrar, "resources": resources,
	"make": func(_ context.Context, args []string) error { return os.WriteFile(args[0], nil, 0o600) },
	"list": func(_ context.Context, args []string) error {
		entries, err := os.ReadDir(args[0])
		for _, e := range entries {
			fmt.Println(e.Name())
		}
		return err
	},
	"remove": func(_ context.Context, args []string) error { return os.Remove(args[0]) },
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if len(os.Args) < 2 || roles[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: plugin ROLE [FLAGS]")
		os.Exit(2)
	}
	if err := roles[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pause waits until it is time to look again; false when the program is to end.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(lookEvery):
		return true
	}
}
