// Command hand does in an emulated machine, as a service of its systemd, what the test tells.
package main

import (
	"fmt"
	"net"
	"os"

	"github.com/everynode/everynode/test/emulated/hand"
)

func main() {
	listener, err := hand.Listen()
	if err == nil {
		err = ready(os.Getenv("NOTIFY_SOCKET"))
	}
	if err == nil {
		err = hand.Serve(listener)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// ready tells systemd so.
func ready(socket string) error {
	conn, err := net.Dial("unixgram", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte("READY=1"))
	return err
}
