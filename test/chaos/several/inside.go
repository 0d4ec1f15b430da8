package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// silence is how long a server that is cut off may leave those who watch at it without a word.
const silence = 20 * time.Second

// alone cuts a server off from all others and not from whoever is on its machine. Their watches must end, and go on at
// another server.
func (c *namespaces) alone(ctx context.Context, name string, j *journal) error {
	client, err := c.inside(name)
	if err != nil {
		return err
	}
	var running []watch.Interface
	defer func() {
		for _, w := range running {
			w.Stop()
		}
	}()
	versions := make([]string, len(kinds))
	life, over := context.WithTimeout(context.WithoutCancel(ctx), 5*silence)
	defer over()
	for i, k := range kinds {
		list, err := k.list(ctx, client, metav1.NamespaceDefault)
		if err != nil {
			return err
		}
		versions[i] = list.(metav1.ListInterface).GetResourceVersion()
		// The end of the round must not pass for the server's.
		w, err := k.watch(life, client, metav1.NamespaceDefault, metav1.ListOptions{ResourceVersion: versions[i]})
		if err != nil {
			return err
		}
		running = append(running, w)
	}
	err = c.cable(name, "down")
	if err != nil {
		return err
	}
	silent, heard := context.WithTimeout(life, silence)
	defer heard()
	for i, w := range running {
		if !ends(w, silent.Done()) {
			j.violate("%s was cut off for %v, and a watch of %s at it goes on", name, silence, kinds[i].name)
			continue
		}
		other := c.servers[(c.indexOf(name)+1)%len(c.servers)]
		from := metav1.ListOptions{ResourceVersion: versions[i]}
		again, err := kinds[i].watch(life, other.client, metav1.NamespaceDefault, from)
		if err == nil {
			again.Stop()
		}
		if err != nil && expired(err) {
			j.violate("a watch of %s at %s cannot go on at %s: %v", kinds[i].name, name, other.name, err)
		}
	}
	return nil
}

// ends reports whether a watch ends, or says that it cannot go on.
func ends(w watch.Interface, late <-chan struct{}) bool {
	for {
		select {
		case e, more := <-w.ResultChan():
			if !more || e.Type == watch.Error {
				return true
			}
		case <-late:
			return false
		}
	}
}

// indexOf is which of all a server is.
func (c *namespaces) indexOf(name string) int {
	for i, s := range c.servers {
		if s.name == name {
			return i
		}
	}
	return 0
}

// inside is a client on the machine of a server.
func (c *namespaces) inside(name string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(c.dir, "kubeconfig"))
	if err != nil {
		return nil, err
	}
	s, err := c.state()
	if err != nil {
		return nil, err
	}
	config.Host, config.QPS = fmt.Sprintf("https://%s:%d", c.servers[c.indexOf(name)].ip, s.Plan.APIPort), -1
	namespace := "/run/netns/everynode-" + c.id + "-" + name
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialIn(ctx, namespace, network, address)
	}
	return kubernetes.NewForConfig(config)
}

// dialIn connects from within a network namespace.
func dialIn(ctx context.Context, namespace, network, address string) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // The thread is of no use to others from here on, and ends with the goroutine.
		var f *os.File
		f, err = os.Open(namespace)
		if err != nil {
			return
		}
		err = errors.Join(unix.Setns(int(f.Fd()), unix.CLONE_NEWNET), f.Close())
		if err == nil {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		}
	}()
	<-done
	return conn, err
}
