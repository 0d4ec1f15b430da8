package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/internal/storage/etcd"
	"github.com/everynode/everynode/internal/testenv/freeport"
	"github.com/everynode/everynode/test/chaos/ground"
	"github.com/everynode/everynode/test/chaos/plan"
	"github.com/everynode/everynode/test/chaos/store"
)

// process is the real program, with everything in it, in a process of its own.
type process struct {
	binary, dir string
	nodes       int
	faulty      string // the file with the labels of nodes; "" without policies
	plain       string // the file that has Secrets be stored as they are, for the judge to read; "" without content
	log         io.Writer
	journal     *journal

	mu      sync.Mutex // held while the process is started or ended
	client  kubernetes.Interface
	ours    *everynode.Client
	away    map[string]bool // nodes that users removed since the last start, which brings them all back
	current sync.Mutex      // guards client, ours and away
	server  *exec.Cmd
	ended   chan error
	apart   *apart // nil if the DaemonSet controller is the server's own
}

// startProcess starts the program on a folder.
func startProcess(ctx context.Context, r *round) (*process, error) {
	p := &process{binary: r.binary, dir: r.dir, nodes: r.plan.Nodes, journal: r.journal, log: r.log}
	if r.plan.Apart {
		p.apart = newApart(p, r.seed, r.plan.ByPods)
	}
	if r.plan.Policies || r.plan.Varied {
		p.faulty = filepath.Join(r.dir, "nodes.yaml")
		if err := os.WriteFile(p.faulty, ground.Ills(&r.plan), 0o600); err != nil {
			return nil, err
		}
	}
	if r.plan.Trouble == plan.Content {
		p.plain = filepath.Join(r.dir, "encryption.yaml")
		if err := os.WriteFile(p.plain, []byte(store.Unencrypted), 0o600); err != nil {
			return nil, err
		}
	}
	err := p.start(ctx)
	if err == nil && p.apart != nil {
		err = p.apart.start()
	}
	if err != nil {
		p.abandon()
		return nil, err
	}
	return p, nil
}

func (p *process) data() string { return filepath.Join(p.dir, "data") }

// recording is what the DaemonSet controller of the last start decided.
func (p *process) recording() string { return filepath.Join(p.dir, "decisions") }

func (p *process) start(ctx context.Context) error {
	port, err := freeport.Take()
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(p.data(), "kubeconfig")
	// The server writes it again when it is ready.
	if err := os.RemoveAll(kubeconfig); err != nil {
		return err
	}
	args := []string{"server", "--data-dir", p.data(), "--listen", "127.0.0.1:" + strconv.Itoa(port), "--simulated-nodes", strconv.Itoa(p.nodes)}
	if p.faulty != "" {
		args = append(args, "--faults", p.faulty)
	}
	if p.plain != "" {
		args = append(args, "--encryption-provider-config", p.plain)
	}
	if p.apart != nil {
		args = append(args, "--daemonset-controller=false")
	} else {
		args = append(args, "--record-decisions", p.recording())
	}
	p.server = exec.Command(p.binary, args...)
	p.server.Stdout, p.server.Stderr = p.log, p.log
	p.server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.server.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.binary, err)
	}
	server, ended := p.server, make(chan error, 1)
	p.ended = ended
	go func() { ended <- server.Wait() }()
	return until(ctx, "the control plane", func(context.Context) error {
		select {
		case err := <-ended:
			ended <- err
			return final{fmt.Errorf("the server ended: %w", err)}
		default:
		}
		if _, err := os.Stat(kubeconfig); err != nil {
			return err
		}
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return err
		}
		config.QPS = -1
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		ours, err := everynode.NewForConfig(config)
		if err != nil {
			return err
		}
		if p.apart != nil {
			if err := p.apart.connect(config); err != nil {
				return err
			}
		}
		p.current.Lock()
		defer p.current.Unlock()
		p.client, p.ours, p.away = client, ours, map[string]bool{}
		return nil
	})
}

func (p *process) kill() {
	if p.server != nil && p.server.Process != nil {
		_ = p.server.Process.Kill()
		p.ended <- <-p.ended
	}
}

func (p *process) api() kubernetes.Interface {
	p.current.Lock()
	defer p.current.Unlock()
	return p.client
}

func (p *process) own() *everynode.Client {
	p.current.Lock()
	defer p.current.Unlock()
	return p.ours
}

// addNode does nothing: the program starts its nodes itself.
func (p *process) addNode(string) string { return "" }

// removeNode has nothing to stop: a simulated node stays away when it is deleted.
func (p *process) removeNode(name string) {
	p.current.Lock()
	defer p.current.Unlock()
	p.away[name] = true
}

// strike does what goes wrong, and undoes it after its time.
func (p *process) strike(ctx context.Context, s plan.Step) {
	if p.apart != nil && p.apart.strike(ctx, s) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.journal.fault("%s", s.Op)
	switch s.Op {
	case plan.PauseServer:
		_ = p.server.Process.Signal(syscall.SIGSTOP)
		sleep(ctx, s.For)
		_ = p.server.Process.Signal(syscall.SIGCONT)
	case plan.StopServer:
		if err := p.terminate(); err != nil {
			p.journal.broken(err)
		}
		if err := p.start(ctx); err != nil {
			p.journal.broken(err)
		}
	case plan.KillServer, plan.BringBack:
		p.kill()
		if err := p.start(ctx); err != nil {
			p.journal.broken(err)
		}
	}
	p.journal.note("end  %s", s.Op)
}

// terminate asks the server to end, and waits for it.
func (p *process) terminate() error {
	_ = p.server.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.ended:
		p.ended <- err
		return err
	case <-time.After(patience):
		// Its last words, where it hangs, go to the log.
		_ = p.server.Process.Signal(syscall.SIGQUIT)
		sleep(context.Background(), time.Second)
		p.kill()
		return errors.New("the server did not end when it was told to")
	}
}

// heal also waits for the nodes that the last start brings back: to a fleet that is
// settled they would come as a change.
func (p *process) heal(ctx context.Context) error {
	if p.apart != nil {
		p.apart.line.Heal()
	}
	return until(ctx, "the nodes of the program", func(ctx context.Context) error {
		nodes, err := p.api().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		p.current.Lock()
		defer p.current.Unlock()
		if want := p.nodes - len(p.away); len(nodes.Items) < want {
			return fmt.Errorf("%d nodes are there, and at least %d should be", len(nodes.Items), want)
		}
		return nil
	})
}

func (p *process) faults() int {
	if p.apart == nil {
		return 0
	}
	return p.apart.line.Faults()
}

// finish ends the server and reads the history from what it leaves on disk.
func (p *process) finish(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.apart != nil {
		p.apart.end()
	}
	if err := p.terminate(); err != nil {
		return fmt.Errorf("stop the server: %w", err)
	}
	db, err := etcd.Start(ctx, etcd.Options{Dir: filepath.Join(p.data(), "etcd"), NoFsync: true})
	if err != nil {
		return err
	}
	defer db.Close()
	return p.journal.read(ctx, db)
}

func (p *process) abandon() {
	if p.apart != nil {
		p.apart.end()
	}
	p.kill()
}
