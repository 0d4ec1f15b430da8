// Command demo is the daemon that the examples and the tests run: one static
// program for an image without a shell. The first argument, or the name it is
// called by (the image links /bin/cat and the others to it), chooses what it is.
//
// Daemons, which end with status 0 at SIGTERM or SIGINT:
//
//	log-agent [--dir /var/log] [--skip pods,containers] [--to FILE]  prints new lines of the files below a folder
//	talk                                                 prints a line each second, and a last one at its end
//	metrics-agent [--port 9100]                          serves /metrics and /healthz
//	http [--port 8080] [--udp] [--unready-file F]        answers with pod, node and version; /ready is 503 while F exists
//	post --url U [--every 5s]                            posts a line to a URL again and again
//	sleep [SECONDS|DURATION]                             does nothing, for ever when no time is given
//	ignore-term                                          does nothing and stays at SIGTERM and SIGINT
//	fail [--after 1s] [--code 1]                         ends with that status
//	fork                                                 starts processes until it may not, and goes on trying
//	flood                                                prints as much as it can
//	fill FILE MIB                                        writes so many megabytes and stays
//	tangle DIR MIB                                       fills a folder with what is hard to measure and to remove
//	scream FILE                                          fills the file of its last words and its log, and fails
//	batter HOST:PORT SECONDS                             floods the name server and a neighbour
//
// Tools, for `kubectl exec` and for commands in manifests:
//
//	cat FILE...    ls [DIR]...    env    version    true    false
//	write FILE TEXT...            rm FILE...        echo TEXT...
//	resolve NAME                  get URL
//	tar -cf - FILE...             tar -xf - [-C DIR]      test -d|-e PATH
//	api PATH                      asks the API server as the pod's service account
//	lookup a|srv|cname|ptr|txt NAME   (an address for ptr)
//	reach                         asks all of a list, and prints what did not answer as it should
//
// VERSION (set in the image), POD_NAME and NODE_NAME (set by the manifest)
// say who answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
)

// command is one of the things this program can be; args exclude its name.
type command func(ctx context.Context, args []string, out io.Writer) error

// commands is filled by init because some of its functions list it.
var commands map[string]command

func init() {
	commands = map[string]command{
		"log-agent": logAgent, "talk": talk, "metrics-agent": metricsAgent, "http": httpServer, "post": post,
		"sleep": sleep, "ignore-term": ignoreTerm, "fail": fail,
		"cat": cat, "ls": ls, "env": env, "version": version, "true": succeed, "false": exitFalse,
		"write": write, "rm": rm, "echo": echo, "resolve": resolve, "lookup": lookup, "reach": reach, "get": get, "api": api,
		"tar": tarCommand, "test": test, "fork": forkForever, "flood": flood, "fill": fillFile,
		"tangle": tangle, "scream": scream, "bewitch": bewitch, "batter": batter,
	}
}

// exitCode is an error that ends the process with a chosen status.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := run(ctx, os.Args, os.Stdout)
	var code exitCode
	switch {
	case errors.As(err, &code):
		os.Exit(int(code))
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run finds the command that argv asks for and runs it.
func run(ctx context.Context, argv []string, out io.Writer) error {
	args := argv[1:]
	name := filepath.Base(argv[0])
	if _, ok := commands[name]; !ok {
		if len(args) == 0 {
			return fmt.Errorf("usage: demo COMMAND [ARGUMENTS]; commands: %s", names())
		}
		name, args = args[0], args[1:]
	}
	c, ok := commands[name]
	if !ok {
		return fmt.Errorf("unknown command %q; commands: %s", name, names())
	}
	if err := c(ctx, args, out); err != nil {
		var code exitCode
		if errors.As(err, &code) {
			return err
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func names() string {
	all := make([]string, 0, len(commands))
	for name := range commands {
		all = append(all, name)
	}
	sort.Strings(all)
	return strings.Join(all, " ")
}

// node names the machine: the manifest's NODE_NAME, else the host name.
func node() string {
	if n := os.Getenv("NODE_NAME"); n != "" {
		return n
	}
	n, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return n
}
