package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// silence is how long it may take at most until some server answers.
	silence = 10 * time.Second
	// probePause is between two questions, and probePatience how long one server may take.
	probePause    = 200 * time.Millisecond
	probePatience = 3 * time.Second
)

// takePart fails while a server is not ready.
func (f *fleet) takePart() error {
	out, err := exec.Command(f.program, "members", "--data-dir", f.dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("everynode members: %w: %s", err, out)
	}
	ready := 0
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == "Ready" {
			ready++
		}
	}
	if ready != f.servers {
		return fmt.Errorf("%d of %d do:\n%s", ready, f.servers, out)
	}
	return nil
}

// answered asks the servers again and again while the steps are made. Never may it be long until one
// of them reads and writes what it is asked for.
func (f *fleet) answered(steps func() error) error {
	clients, err := f.clients()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	var longest time.Duration
	var asked int
	var reason error
	asking.Go(func() {
		for last := time.Now(); ctx.Err() == nil; time.Sleep(probePause) {
			err := some(ctx, clients, asked)
			if ctx.Err() != nil {
				return
			}
			asked++
			if took := time.Since(last); took > longest {
				longest, reason = took, errors.Join(reason, err)
			}
			if err == nil {
				last = time.Now()
			}
		}
	})
	err = steps()
	cancel()
	asking.Wait()
	if err != nil {
		return err
	}
	if longest > silence {
		return fmt.Errorf("for %.1f s no server read and wrote what it was asked for: %w", longest.Seconds(), reason)
	}
	fmt.Printf(
		"%d servers: some read and wrote %d times meanwhile; the longest time without was %.1f s\n",
		f.servers, asked, longest.Seconds(),
	)
	return nil
}

// some asks all servers at once, and is content when one of them reads and writes.
func some(ctx context.Context, clients []kubernetes.Interface, number int) (err error) {
	answers := make(chan error, len(clients))
	for _, client := range clients {
		go func() { answers <- ask(ctx, client, number) }()
	}
	for range clients {
		if err = <-answers; err == nil {
			return nil
		}
	}
	return err
}

func ask(ctx context.Context, client kubernetes.Interface, number int) error {
	if _, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/asked":"%d"}}}`, number)
	_, err := client.CoreV1().Namespaces().Patch(
		ctx, "default", types.MergePatchType, []byte(patch), metav1.PatchOptions{},
	)
	return err
}

// clients are for one server each.
func (f *fleet) clients() (out []kubernetes.Interface, err error) {
	p, err := f.processes()
	if err != nil {
		return nil, err
	}
	for _, server := range p.Plan.Servers {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(f.dir, "kubeconfig"))
		if err != nil {
			return nil, err
		}
		config.Host, config.Timeout, config.QPS = "https://"+
			net.JoinHostPort(server.IP, strconv.Itoa(p.Plan.APIPort)), probePatience, -1
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		out = append(out, client)
	}
	if len(out) != f.servers {
		return nil, fmt.Errorf("the cluster names %d servers, and %d were asked for", len(out), f.servers)
	}
	return out, nil
}
