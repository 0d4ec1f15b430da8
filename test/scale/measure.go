package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/internal/testenv/freeport"
	"github.com/everynode/everynode/test/scale/usage"
)

type options struct {
	binary string
	nodes  int
	// sets is how many DaemonSets there are; one of them is updated and removed.
	sets        int
	unavailable string
	// idle is for how long nothing happens, after the update.
	idle time.Duration
	// patience bounds every phase.
	patience time.Duration
	// servers is how many there are, 1 for none. library keeps all kinds the library's way.
	servers int
	library bool
	// agents says that nodes are agents in this process, and not simulated ones in the server's.
	agents bool
	// profiles is the folder for profiles of the server; none are kept if it is empty.
	profiles string
	// more are flags of the server.
	more []string
	// mounts says that pods mount a ConfigMap.
	mounts bool
}

type result struct {
	ready, create, update, remove phase
	// rest is what the servers do while nothing happens, and settled the memory of the first after that.
	rest    phase
	settled int64
	// whole is what the servers have used from their start to the end of the run, each what
	// each of them has.
	whole usage.Usage
	each  []usage.Usage
	// watches and connections are how many the first server served when all nodes had their pods.
	watches, connections int
}

// phase is what one step took: by the clock, and of the servers' CPU time. On a
// machine that does other things too, only the latter can be compared.
type phase struct {
	took, cpu time.Duration
	// half and most are how long half of the nodes waited for a pod at most, and 99 of 100.
	half, most time.Duration
	written    int64
	// heap is what the first server allocated.
	heap heap
}

// String implements fmt.Stringer.
func (p phase) String() string { return fmt.Sprintf("%.1f / %.1f", p.took.Seconds(), p.cpu.Seconds()) }

// core is the share of one core that was used.
func (p phase) core() float64 { return p.cpu.Seconds() / p.took.Seconds() }

// bench is one run: a control plane of its own in a process of its own.
type bench struct {
	options
	dir    string
	client kubernetes.Interface
	config *restclient.Config
	server *exec.Cmd
	// pace is nil where nobody asks how long nodes wait.
	pace  *pace
	ended chan error
	// port is where the API is; others may be there too, at other addresses.
	port      int
	followers []follower
}

// newBench starts a control plane; cleanUp ends it and removes what it left.
func newBench(ctx context.Context, o options) (b *bench, cleanUp func(), err error) {
	dir, err := os.MkdirTemp("", "everynode-scale-")
	if err != nil {
		return nil, nil, err
	}
	b = &bench{options: o, dir: dir}
	err = b.start(ctx)
	if err == nil {
		err = b.joinOthers(ctx)
	}
	if err != nil {
		b.stop()
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return b, func() { b.stop(); _ = os.RemoveAll(dir) }, nil
}

func measure(ctx context.Context, o options) (r result, err error) {
	start := time.Now()
	b, cleanUp, err := newBench(ctx, o)
	if err != nil {
		return r, err
	}
	defer cleanUp()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer func() { err = because(ctx, err) }()
	if b.agents {
		stop, err := b.startAgents(ctx, fail)
		if err != nil {
			return r, err
		}
		defer stop()
	}
	if err := b.profiled(ctx, "nodes", b.nodesReady); err != nil {
		return r, err
	}
	r.ready.took = time.Since(start)
	at, _, err := b.used()
	if err != nil {
		return r, err
	}
	r.ready.cpu = at.CPU
	b.settle()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	b.pace = b.watchPods(watching)
	for _, step := range []struct {
		name  string
		phase *phase
		run   func(context.Context) error
	}{
		{"create", &r.create, b.create},
		{"update", &r.update, b.update},
		{"idle", &r.rest, b.rest},
		{"delete", &r.remove, b.remove},
	} {
		if step.phase == &r.rest && b.idle > 0 {
			if err := pause(ctx, aftermath); err != nil {
				return r, err
			}
		}
		if err := b.profiled(ctx, step.name, func(ctx context.Context) (err error) {
			*step.phase, err = b.time(ctx, step.run)
			return err
		}); err != nil {
			return r, err
		}
		if step.phase == &r.rest {
			_, r.each, err = b.used()
			if err != nil {
				return r, err
			}
			r.settled = r.each[0].Now
			if err := b.count(ctx, &r); err != nil {
				return r, err
			}
		}
		b.settle()
	}
	r.whole, r.each, err = b.used()
	return r, err
}

// because returns why ctx has ended in place of the error that came of that: an agent that cannot go on is the reason,
// and not that the rest was ended for it.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// count notes who is connected.
func (b *bench) count(ctx context.Context, r *result) (err error) {
	r.watches, err = b.watches(ctx)
	if err != nil {
		return err
	}
	r.connections, err = b.connections()
	return err
}

// simulated is how many nodes the server is to simulate.
func (b *bench) simulated() int {
	if b.agents {
		return 0
	}
	return b.nodes
}

// aftermath is how long an update is not over for the server: events are written one after another, behind everything
// else.
const aftermath = 30 * time.Second

// rest does nothing.
func (b *bench) rest(ctx context.Context) error { return pause(ctx, b.idle) }

func pause(ctx context.Context, wait time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return nil
	}
}

// settle waits, so that what one phase leaves behind does not count for the next.
func (b *bench) settle() { time.Sleep(2 * time.Second) }

func (b *bench) time(ctx context.Context, run func(context.Context) error) (p phase, err error) {
	made, err := b.heap(ctx)
	if err != nil {
		return p, err
	}
	before, _, err := b.used()
	if err != nil {
		return p, err
	}
	begin := time.Now()
	if b.pace != nil {
		b.pace.begin(begin)
	}
	if err := run(ctx); err != nil {
		return p, err
	}
	p.took = time.Since(begin)
	if b.pace != nil {
		p.half, p.most, err = b.pace.waited()
		if err != nil {
			return p, err
		}
	}
	after, _, err := b.used()
	if err != nil {
		return p, err
	}
	p.cpu, p.written = after.CPU-before.CPU, after.Written-before.Written
	now, err := b.heap(ctx)
	p.heap = heap{now.allocated - made.allocated, now.collections - made.collections}
	return p, err
}

// start runs a server on the run's folder, for the first time or again.
func (b *bench) start(ctx context.Context) error {
	var err error
	if b.port == 0 { // who speaks to it goes on where it starts again
		b.port, err = freeport.Take()
		if err != nil {
			return err
		}
	}
	log, err := os.OpenFile(filepath.Join(b.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	data := filepath.Join(b.dir, "data")
	// The server writes it again when it is ready.
	if err := os.RemoveAll(filepath.Join(data, "kubeconfig")); err != nil {
		return err
	}
	args := []string{
		"server",
		"--data-dir",
		data,
		"--listen",
		"127.0.0.1:" + strconv.Itoa(b.port),
		"--simulated-nodes",
		strconv.Itoa(b.simulated()),
	}
	args = append(args, b.more...)
	if b.library {
		file := filepath.Join(b.dir, "storage.yaml")
		if err := os.WriteFile(file, []byte(plainStorage), 0o600); err != nil {
			return err
		}
		args = append(args, "--encryption-provider-config", file)
	}
	b.server = exec.Command(b.binary, args...)
	b.server.Stdout, b.server.Stderr = log, log
	b.server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.server.Start(); err != nil {
		return fmt.Errorf("start %s: %w", b.binary, err)
	}
	ended, server := make(chan error, 1), b.server
	b.ended = ended
	go func() { ended <- server.Wait() }()
	return b.until(ctx, "the control plane", func(context.Context) (bool, error) {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(data, "kubeconfig"))
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		b.config = config
		b.client, err = kubernetes.NewForConfig(config)
		return err == nil, err
	})
}

func (b *bench) stop() {
	for _, f := range b.followers {
		_ = f.cmd.Process.Kill()
		<-f.ended
	}
	if b.ended == nil {
		return // It has never run.
	}
	if len(b.followers) > 0 {
		_ = b.server.Process.Kill() // Nobody is left with whom it could end in order.
	}
	_ = b.server.Process.Signal(syscall.SIGTERM)
	select {
	case <-b.ended:
	case <-time.After(30 * time.Second):
		_ = b.server.Process.Kill()
		<-b.ended
	}
}

// until polls a condition.
func (b *bench) until(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	deadline := time.Now().Add(b.patience)
	for {
		ok, err := done(ctx)
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case err := <-b.ended:
			b.ended <- err
			return fmt.Errorf("wait for %s: the server ended: %w", what, err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("wait for %s: not done after %v", what, b.patience)
		}
	}
}
