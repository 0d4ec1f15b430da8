package probes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/internal/agent/env"
)

// maxOutput bounds what is read and shown of an answer, in bytes.
const maxOutput = 10 * 1024

// outcome is what one check showed.
type outcome struct {
	success bool
	warning bool // a success that somebody should look at
	output  string
}

// checker does single checks.
type checker struct {
	exec      Exec
	userAgent string
	transport http.RoundTripper
}

func newChecker(cfg Config) checker {
	return checker{exec: cfg.Exec, userAgent: "kube-probe/" + shortVersion(cfg.Version), transport: newTransport()}
}

// shortVersion is major and minor of a version: 1.37 of v1.37.2.
func shortVersion(version string) string {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	return strings.Join(parts[:min(len(parts), 2)], ".")
}

// do checks once. An error says that the check could not be made; a server that doesn't answer is an outcome.
func (c checker) do(ctx context.Context, t *target, probe *corev1.Probe) (outcome, error) {
	timeout := time.Duration(atLeastOne(probe.TimeoutSeconds, 1)) * time.Second
	switch {
	case probe.Exec != nil:
		return c.command(ctx, t, probe.Exec, timeout)
	case probe.HTTPGet != nil:
		port, err := portNumber(probe.HTTPGet.Port, t.container)
		if err != nil {
			return outcome{}, err
		}
		return c.get(ctx, probe.HTTPGet, withDefault(probe.HTTPGet.Host, t.podIP), port, timeout)
	case probe.TCPSocket != nil:
		port, err := portNumber(probe.TCPSocket.Port, t.container)
		if err != nil {
			return outcome{}, err
		}
		return connect(ctx, address(withDefault(probe.TCPSocket.Host, t.podIP), port), timeout), nil
	case probe.GRPC != nil:
		service := ""
		if probe.GRPC.Service != nil {
			service = *probe.GRPC.Service
		}
		return c.health(ctx, address(t.podIP, int(probe.GRPC.Port)), service, timeout), nil
	}
	return outcome{}, fmt.Errorf("missing probe handler for %s:%s", t.pod.Name, t.container.Name)
}

// command runs a command in the container; a zero exit code is success.
func (c checker) command(ctx context.Context, t *target, action *corev1.ExecAction,
	timeout time.Duration) (outcome, error) {
	fixed := make([]env.Var, 0, len(t.container.Env))
	for _, v := range t.container.Env {
		fixed = append(fixed, env.Var{Name: v.Name, Value: v.Value})
	}
	command := make([]string, len(action.Command))
	for i, word := range action.Command {
		var err error
		command[i], err = env.Expand(word, env.Lookup(fixed))
		if err != nil {
			return outcome{}, fmt.Errorf("command: %w", err)
		}
	}
	stdout, stderr, exitCode, err := c.exec(ctx, t.containerID, command, timeout)
	if errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded {
		said := fmt.Sprintf("command timed out: %q timed out after %v", strings.Join(command, " "), timeout)
		return outcome{output: said}, nil
	}
	if err != nil {
		return outcome{}, err
	}
	return outcome{success: exitCode == 0, output: shorten(string(stdout) + string(stderr))}, nil
}

// connect opens a TCP connection and closes it.
func connect(ctx context.Context, address string, timeout time.Duration) outcome {
	conn, err := newDialer(timeout).DialContext(ctx, "tcp", address)
	if err != nil {
		return outcome{output: err.Error()}
	}
	// The connection has shown what it should; how it closes says nothing more.
	_ = conn.Close()
	return outcome{success: true}
}

// newDialer makes connections that leave ports early: many probes would otherwise keep many of them waiting.
func newDialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, Control: func(_, _ string, raw syscall.RawConn) error {
		var setErr error
		err := raw.Control(func(fd uintptr) {
			setErr = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{
				Onoff:  1,
				Linger: 1,
			})
		})
		return errors.Join(err, setErr)
	}}
}

// portNumber finds the number of a port that may be named after one of the container's.
func portNumber(port intstr.IntOrString, container *corev1.Container) (int, error) {
	number := port.IntValue()
	if port.Type == intstr.String && number == 0 {
		for _, p := range container.Ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
			}
		}
		if number == 0 {
			return 0, fmt.Errorf("couldn't find port: %v for container: %v", port.StrVal, container.Name)
		}
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("invalid port number: %v", number)
	}
	return number, nil
}

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

func withDefault(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

func shorten(s string) string {
	if len(s) > maxOutput {
		return s[:maxOutput]
	}
	return s
}
