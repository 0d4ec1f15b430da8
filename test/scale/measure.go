package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// patience bounds every phase.
const patience = 15 * time.Minute

type options struct {
	binary      string
	nodes       int
	unavailable string
	// servers is how many there are, 1 for none. library keeps all kinds the library's way.
	servers int
	library bool
}

type result struct {
	ready, create, update, remove phase
	// peak is the largest resident memory in bytes.
	peak int64
	// cpu is what the servers have used from their start to the end of the run, each what
	// each of them has.
	cpu  time.Duration
	each []used
}

// phase is what one step took: by the clock, and of the servers' CPU time. On a
// machine that does other things too, only the latter can be compared.
type phase struct{ took, cpu time.Duration }

func (p phase) String() string { return fmt.Sprintf("%.1f / %.1f", p.took.Seconds(), p.cpu.Seconds()) }

// bench is one run: a control plane of its own in a process of its own.
type bench struct {
	options
	dir    string
	client kubernetes.Interface
	config *restclient.Config
	server *exec.Cmd
	ended  chan error
	// port is where the API is; others may be there too, at other addresses.
	port      string
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
	if err := b.nodesReady(ctx); err != nil {
		return r, err
	}
	r.ready.took = time.Since(start)
	if r.ready.cpu, _, err = b.used(); err != nil {
		return r, err
	}
	b.settle()
	for _, step := range []struct {
		phase *phase
		run   func(context.Context) error
	}{{&r.create, b.create}, {&r.update, b.update}, {&r.remove, b.remove}} {
		if *step.phase, err = b.time(ctx, step.run); err != nil {
			return r, err
		}
		b.settle()
	}
	if r.cpu, r.each, err = b.used(); err != nil {
		return r, err
	}
	r.peak = r.each[0].peak
	return r, nil
}

// settle waits, so that what one phase leaves behind does not count for the next.
func (b *bench) settle() { time.Sleep(2 * time.Second) }

func (b *bench) time(ctx context.Context, run func(context.Context) error) (p phase, err error) {
	before, _, err := b.used()
	if err != nil {
		return p, err
	}
	begin := time.Now()
	if err := run(ctx); err != nil {
		return p, err
	}
	p.took = time.Since(begin)
	after, _, err := b.used()
	p.cpu = after - before
	return p, err
}

// start runs a server on the run's folder, for the first time or again.
func (b *bench) start(ctx context.Context) error {
	var err error
	if b.port, err = freePort(); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(b.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	data := filepath.Join(b.dir, "data")
	// The server writes it anew when it is ready.
	if err := os.RemoveAll(filepath.Join(data, "kubeconfig")); err != nil {
		return err
	}
	args := []string{"server", "--data-dir", data, "--listen", "127.0.0.1:" + b.port, "--simulated-nodes", strconv.Itoa(b.nodes)}
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
		config.QPS = -1
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
	deadline := time.Now().Add(patience)
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
			return fmt.Errorf("wait for %s: not done after %v", what, patience)
		}
	}
}

// nodesReady waits until every node can take ordinary pods.
func (b *bench) nodesReady(ctx context.Context) error {
	return b.until(ctx, "the nodes", func(ctx context.Context) (bool, error) {
		list, err := b.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		ready := 0
		for i := range list.Items {
			if len(list.Items[i].Spec.Taints) == 0 {
				ready++
			}
		}
		if ready < b.nodes {
			time.Sleep(200 * time.Millisecond) // Listing thousands of nodes costs the server too.
		}
		return ready == b.nodes, nil
	})
}

func (b *bench) create(ctx context.Context) error {
	if err := b.apply(ctx); err != nil {
		return err
	}
	return b.available(ctx)
}

// apply creates the DaemonSet and does not wait for its pods.
func (b *bench) apply(ctx context.Context) error {
	labels := map[string]string{"app": "bench"}
	unavailable := intstr.Parse(b.unavailable)
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		Spec: appsv1.DaemonSetSpec{
			Selector:       &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &unavailable}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "everynode.io/demo:v1"}}},
			},
		},
	}
	_, err := b.client.AppsV1().DaemonSets("default").Create(ctx, ds, metav1.CreateOptions{})
	return err
}

func (b *bench) update(ctx context.Context) error { return b.rollOut(ctx, "everynode.io/demo:v2") }

// rollOut gives the DaemonSet another image, and waits until all nodes run it.
func (b *bench) rollOut(ctx context.Context, image string) error {
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":%q}]}}}}`, image)
	if _, err := b.client.AppsV1().DaemonSets("default").Patch(ctx, "bench", "application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil {
		return err
	}
	return b.available(ctx)
}

// available waits until every node runs the newest template.
func (b *bench) available(ctx context.Context) error {
	return b.until(ctx, "the DaemonSet", func(ctx context.Context) (bool, error) {
		ds, err := b.client.AppsV1().DaemonSets("default").Get(ctx, "bench", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		n, s := int32(b.nodes), ds.Status
		return s.ObservedGeneration == ds.Generation && s.DesiredNumberScheduled == n && s.UpdatedNumberScheduled == n && s.NumberAvailable == n, nil
	})
}

func (b *bench) remove(ctx context.Context) error {
	if err := b.client.AppsV1().DaemonSets("default").Delete(ctx, "bench", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return b.until(ctx, "the pods to go", func(ctx context.Context) (bool, error) {
		list, err := b.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil && len(list.Items) == 0, err
	})
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// usage reads a process's peak resident memory and the CPU time it has used.
func usage(pid int) (peak int64, cpu time.Duration, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.SplitSeq(string(status), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				return 0, 0, fmt.Errorf("read the peak memory: %w", err)
			}
			peak = kib << 10
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// The fields after the command's name, which may hold spaces, in brackets.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, i := range []int{11, 12} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read the CPU time: %w", err)
		}
		ticks += n
	}
	return peak, time.Duration(ticks) * 10 * time.Millisecond, nil
}
