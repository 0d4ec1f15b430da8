// Package opening has simulated nodes join a control plane that starts daemons on them first, while ordinary pods wait
// for room and the server is killed, and records all that is written meanwhile. test/chaos/history/gates judges that.
//
//	opening.go   what happens in a run
//	machines.go  the nodes, which outlive the server
//	recorder.go  the history, from watches, and from the database where a kill cut them off
package opening

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/gates"
)

// Server is the control plane that nodes join. It is where it was when it has started again.
type Server interface {
	Config() *restclient.Config
	// Kill ends it at once, and Start starts it again.
	Kill()
	Start(ctx context.Context) error
	// Database is the folder of its database.
	Database() string
}

// Options say what a run is like.
type Options struct {
	// Nodes join, Rate of them a second. Twice as many pods wait for them.
	Nodes, Rate int
	// Kills is how often the server is killed, at moments that the seed chooses.
	Kills int
	Seed  uint64
	// Patience is for how long it may all take.
	Patience time.Duration
	Server   Server
	// Begins is called when all is prepared, before the first node joins.
	Begins func() error
}

// groups are the daemons that each node starts, one after the other.
var groups = []string{"cni", "logs"}

const namespace = metav1.NamespaceDefault

// Run has the nodes join, and returns when all are open and all pods have a node, or patience has ended.
func Run(ctx context.Context, o Options) (h gates.History, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &run{Options: o, recorder: newRecorder()}
	r.client, err = kubernetes.NewForConfig(o.Server.Config())
	if err != nil {
		return h, fmt.Errorf("make a client: %w", err)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	followed := r.recorder.follow(watching, r.client)
	defer followed()
	err = r.prepare(ctx)
	if err != nil {
		return h, err
	}
	fleet, err := startMachines(watching, o.Server.Config())
	if err != nil {
		return h, err
	}
	err = o.Begins()
	if err != nil {
		return h, err
	}
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		fleet.join(watching, o.Nodes, o.Rate)
	}()
	err = r.killNowAndThen(ctx, fleet)
	if err == nil {
		err = r.finish(ctx)
	}
	stop()
	<-joined
	followed()
	if err != nil {
		return h, err
	}
	if r.recorder.holes() > 0 {
		o.Server.Kill()
		err = r.recorder.fill(ctx, o.Server.Database())
	}
	if err == nil && r.recorder.holes() > 0 {
		err = errors.New("a part of the history is lost")
	}
	h = r.recorder.history()
	for _, name := range groups {
		h.Daemons = append(h.Daemons, namespace+"/"+name)
	}
	return h, err
}

// run is one run.
type run struct {
	Options
	client   kubernetes.Interface
	recorder *recorder
}

// prepare makes the daemons, the NodeStartup and the pods that wait.
func (r *run) prepare(ctx context.Context) error {
	for _, name := range groups {
		_, err := r.client.AppsV1().DaemonSets(namespace).Create(ctx, daemonSet(name), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("make DaemonSet %s: %w", name, err)
		}
	}
	err := admit(ctx, r.client)
	if err != nil {
		return err
	}
	own, err := everynode.NewForConfig(r.Server.Config())
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	for _, name := range groups {
		s.Spec.Groups = append(s.Spec.Groups, v1alpha1.StartupGroup{
			DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: namespace, Name: name}},
		})
	}
	_, err = own.NodeStartups().Create(ctx, s, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the NodeStartup: %w", err)
	}
	return inParallel(2*r.Nodes, func(i int) error {
		_, err := r.client.CoreV1().Pods(namespace).Create(ctx, ordinary(i), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("make a pod that waits: %w", err)
		}
		return nil
	})
}

func daemonSet(name string) *appsv1.DaemonSet {
	labels := map[string]string{"app": name, "daemon": "yes"}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	ds.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec("50m")}
	return ds
}

// ordinary is a pod of which a node has room for two.
func ordinary(i int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("work-%05d", i)}, Spec: podSpec("3")}
}

func podSpec(cpu string) corev1.PodSpec {
	c := corev1.Container{Name: "main", Image: "everynode.io/demo:v1"}
	c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	return corev1.PodSpec{Containers: []corev1.Container{c}}
}

// inParallel does a number of things, some at a time, and returns an error of one.
func inParallel(n int, do func(i int) error) error {
	const workers = 16
	failed := make(chan error, workers)
	for worker := range workers {
		go func() {
			for i := worker; i < n; i += workers {
				err := do(i)
				if err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	var errs []error
	for range workers {
		errs = append(errs, <-failed)
	}
	return errors.Join(errs...)
}

// killNowAndThen kills the server, each time when another number of nodes has opened.
func (r *run) killNowAndThen(ctx context.Context, fleet *machines) error {
	dice := rand.New(rand.NewPCG(r.Seed, 0))
	var when []int
	for range r.Kills {
		when = append(when, dice.IntN(max(1, r.Nodes*9/10)))
	}
	slices.Sort(when)
	for _, opened := range when {
		err := r.until(ctx, func() bool { return r.recorder.opened() >= opened })
		if err != nil {
			return err
		}
		pause(ctx, time.Duration(dice.IntN(1000))*time.Millisecond)
		err = r.kill(ctx, fleet)
		if err != nil {
			return err
		}
	}
	return nil
}

// kill kills the server, reads what the database has that nobody was told of, and starts it again.
func (r *run) kill(ctx context.Context, fleet *machines) error {
	fleet.line.hold()
	defer fleet.line.release() // when the recorder listens again
	r.recorder.away()
	r.Server.Kill()
	err := r.recorder.fill(ctx, r.Server.Database())
	if err != nil {
		return err
	}
	err = r.Server.Start(ctx)
	if err != nil {
		return fmt.Errorf("start the server again: %w", err)
	}
	return r.until(ctx, r.recorder.listens)
}

// finish waits until nothing is to come.
func (r *run) finish(ctx context.Context) error {
	err := r.until(ctx, func() bool { return r.recorder.opened() == r.Nodes && r.recorder.bound() == 2*r.Nodes })
	if errors.Is(err, errPatience) {
		return nil // the judge says what is missing
	}
	return err
}

var errPatience = errors.New("it takes too long")

func (r *run) until(ctx context.Context, done func() bool) error {
	end := time.Now().Add(r.Patience)
	for !done() {
		pause(ctx, 10*time.Millisecond)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(end):
			return errPatience
		}
	}
	return nil
}

func pause(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}
