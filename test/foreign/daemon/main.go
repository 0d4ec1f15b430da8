// Command daemon is what runs on the real nodes of a test. It reads its level from its environment and from a file, and
// ends at once if it does not know it, or if its bits are broken. Else it says both, and goes on.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func run() error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	bits, err := os.ReadFile("/bits")
	if err != nil {
		return err
	}
	file, err := os.ReadFile("/etc/agent/level")
	if err != nil {
		return err
	}
	level := os.Getenv("level")
	if strings.TrimSpace(string(file)) != level {
		return fmt.Errorf("the level is %q by the file and %q by the environment", file, level)
	}
	if !slices.Contains([]string{"info", "debug", "warn"}, level) {
		return fmt.Errorf("there is no level %q", level)
	}
	if string(bits) == "broken" {
		return errors.New("these bits are broken")
	}
	fmt.Printf("level %s, bits %s\n", level, bits)
	<-stop
	return nil
}
