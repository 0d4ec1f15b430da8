package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/local/gate"
	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/process"
	"github.com/everynode/everynode/internal/local/progress"
	"github.com/everynode/everynode/internal/local/remains"
)

// tokenPatience bounds the making of a token for a server that joins.
const tokenPatience = 30 * time.Second

// servers is the control plane of a cluster while it runs: one process, or several and
// the gate in front of them.
type servers struct {
	cluster *cluster
	group   sync.WaitGroup
	gate    *gate.Gate // nil for one alone
	// ended gets why each has ended by itself.
	ended []chan error
}

func newServers(c *cluster) *servers {
	s := &servers{cluster: c}
	for range c.plan.ControlPlanes() {
		s.ended = append(s.ended, make(chan error, 1))
	}
	return s
}

// begin starts those that can be: all but the ones that are still to join. They run until
// ctx ends.
func (s *servers) begin(ctx context.Context) error {
	if len(s.cluster.plan.Servers) == 0 {
		s.start(ctx, s.cluster.serverChild(s.ended[0]))
		return nil
	}
	if err := s.openGate(ctx); err != nil {
		return err
	}
	for number := range s.cluster.plan.Servers {
		if number == 0 || s.hasJoined(number) {
			s.start(ctx, s.child(number))
		}
	}
	return nil
}

func (s *servers) start(ctx context.Context, c *process.Child) {
	s.group.Go(func() {
		if err := c.Run(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "A server was not stopped in order", "process", c.Name)
		}
	})
}

// openGate listens where one server alone would.
func (s *servers) openGate(ctx context.Context) error {
	p := s.cluster.plan
	var listeners []net.Listener
	for _, address := range p.GateAddresses() {
		l, err := net.Listen("tcp", address)
		if err != nil {
			for _, open := range listeners {
				_ = open.Close()
			}
			return fmt.Errorf("listen for the servers: %w; choose another --api-port", err)
		}
		listeners = append(listeners, l)
	}
	var behind []netip.AddrPort
	for number := range p.Servers {
		behind = append(behind, p.ServerAddress(number))
	}
	s.gate = gate.New(behind, p.Kubeconfig())
	s.group.Go(func() { s.gate.Run(ctx, listeners) })
	return nil
}

// hasJoined reports whether a server has a database among those of the others.
func (s *servers) hasJoined(number int) bool {
	dir := s.cluster.plan.ServerDir(number)
	for _, part := range []string{"members.json", "etcd/member/wal"} {
		if _, err := os.Stat(filepath.Join(dir, part)); errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

// child is the process of one of several servers.
func (s *servers) child(number int) *process.Child {
	c, self := s.cluster, s.cluster.plan.Servers[number]
	args := c.serverArgs(c.plan.ServerDir(number), c.plan.ServerAddress(number).String())
	args = append(args, "--server-name", self.Name)
	for _, address := range c.plan.GateAddresses() {
		args = append(args, "--balancer", address)
	}
	return &process.Child{
		Name: self.Name,
		Start: func() (*exec.Cmd, error) {
			run := process.Command{Path: c.options.Executable, Name: "everynode", Args: args, Mark: c.plan.Mark(),
				Log: c.plan.ServerLogOf(number)}
			if number > 0 && !s.hasJoined(number) {
				making, cancel := context.WithTimeout(context.Background(), tokenPatience)
				defer cancel()
				token, err := c.createToken(making, "--server")
				if err != nil {
					return nil, err
				}
				run.Args = append(slices.Clone(args), "--join", "https://"+s.gate.Best().String())
				run.Env = []string{TokenVariable + "=" + token}
			}
			if c.plan.Runtime == layout.RuntimeContainerd {
				return startConnected(run, c.plan.NodeNetns(self.Name))
			}
			return run.Start()
		},
		Note: func(p process.Process) error {
			return c.ledger.Update(func(s *layout.State) {
				if number == 0 {
					s.Server = p
					return
				}
				if s.Others == nil {
					s.Others = map[string]process.Process{}
				}
				s.Others[self.Name] = p
			})
		},
		Patience: remains.ServerPatience,
		Ended:    s.ended[number],
	}
}

// startConnected starts a program in a named network namespace.
func startConnected(c process.Command, netns string) (*exec.Cmd, error) {
	cmd, log, err := c.Build()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if err := startInNetns(cmd, netns); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	return cmd, nil
}

// becomeReady waits for the servers; those that have never joined do so when the first is
// ready. It returns how many are. A minority that has joined before and does not come is
// told of and left: without a cluster that runs it could not be mended.
func (s *servers) becomeReady(ctx, life context.Context, report progress.Report) (int, error) {
	if s.gate == nil {
		return 1, s.cluster.waitServer(ctx, s.ended[0])
	}
	var first, joining []int
	for number := range s.gate.Servers {
		if number == 0 || s.hasJoined(number) {
			first = append(first, number)
		} else {
			joining = append(joining, number)
		}
	}
	missing, err := s.wait(ctx, first)
	if err != nil {
		return 0, err
	}
	if 2*len(missing) >= len(first) {
		return 0, missing[0]
	}
	for _, err := range missing {
		report(progress.Event{Kind: progress.Note, Text: "  ! " + err.Error()})
	}
	// The first writes the kubeconfig, with which tokens are made.
	if err := s.cluster.waitServer(ctx, nil); err != nil {
		return 0, err
	}
	for _, number := range joining {
		s.start(life, s.child(number))
	}
	if bad, err := s.wait(ctx, joining); err != nil || len(bad) > 0 {
		return 0, errors.Join(append(bad, err)...)
	}
	return len(first) - len(missing) + len(joining), nil
}

// wait waits until each of the servers is ready or has failed, and says why those have.
func (s *servers) wait(ctx context.Context, numbers []int) (bad []error, err error) {
	waiting, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	failed := map[int]error{}
	ends := map[int]int{}
	for {
		ready := 0
		for _, number := range numbers {
			log := s.cluster.plan.ServerLogOf(number)
			name := s.cluster.plan.Servers[number].Name
			select {
			case err := <-s.ended[number]:
				ends[number]++
				if ends[number] >= hopeless {
					failed[number] = fmt.Errorf("%s ended %d times (%w): %s; see %s", name, hopeless, err, process.LastWords(log), log)
				}
			case <-waiting.Done():
				failed[number] = fmt.Errorf("%s did not become ready: %w; see %s", name, waiting.Err(), log)
			default:
			}
			if s.gate.IsReady(number) {
				ready++
				delete(failed, number)
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if ready+len(failed) >= len(numbers) {
			for _, number := range numbers {
				if failed[number] != nil {
					bad = append(bad, failed[number])
				}
			}
			return bad, nil
		}
		select {
		case <-waiting.Done():
		case <-time.After(askEvery):
		}
	}
}
