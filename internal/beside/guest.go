// Package beside runs policies where somebody else's kube-controller-manager makes the pods. Its parts:
//
//	admit         decides what a pod and a DaemonSet are to be, and what is given back; pure
//	gates         decides which pods may ask a registry what their images are, where these are pinned; pure
//	steps         knows each node's step in a policy, by the same facts as the core that leads changes; pure
//	makers        knows by which account pods were made
//	joining       makes the changes of Nodes that start; pure
//	registration  makes the webhook configuration and the policies inside the API server; pure
//	certs         decides what the webhook serves with; pure
//	webhook       answers the API server; every replica does
//
// This package is the shell around them: it keeps the certificate, registers the webhook, and takes DaemonSets over and
// gives them back. The pods themselves are deleted, each in its turn, by internal/controller/daemonset as a guest.
package beside

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/internal/beside/fresh"
	"github.com/everynode/everynode/internal/beside/gates"
	"github.com/everynode/everynode/internal/beside/makers"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/beside/webhook"
)

// Options say how Everynode runs beside another controller.
type Options struct {
	// Listen is the host:port at which the webhook answers.
	Listen string
	// URL is where the API server finds it; without it the Service, in the namespace, is.
	URL                string
	Namespace, Service string
	// Secret is the name of that with the certificate, in the namespace.
	Secret string
	// Maker is the account of the controller that makes DaemonSets' pods.
	Maker string
	// Fail has pods and DaemonSets refused while nobody answers.
	Fail bool
}

// Config is what New needs.
type Config struct {
	Options
	API      *rest.Config
	Recorder record.EventRecorder
	// Normalize fills a pod template's defaults in.
	Normalize  func(*corev1.PodTemplateSpec)
	Registerer prometheus.Registerer
	// Writing is as API, and refuses what this process writes after another has begun to lead.
	Writing *rest.Config
	// CaughtUp is closed once the cache of who leads is not behind; nil if it never is.
	CaughtUp <-chan struct{}
}

// Guest is Everynode beside another controller.
type Guest struct {
	cfg     Config
	client  kubernetes.Interface
	own     *everynode.Client
	account string
	webhook *webhook.Server
	listen  net.Listener
	// held says of DaemonSets what was last told about them, by namespace and name.
	held map[string]string
	wake chan struct{}
	// looked is closed when everything was looked at once; wrongPods are those that were wrong the last time, by the
	// namespace and name of their DaemonSet.
	looked    chan struct{}
	wrongPods map[string]map[types.UID]bool
	trials    trials
	waiting   waiting
	again     gates.Again
	makers    makers.Book
	// toldOther says of DaemonSets what was last told of who makes their pods.
	toldOther map[types.UID]string
	startups  startups
	// led is since when it leads.
	led time.Time
}

// New asks the API who we are, and takes the webhook's address, so that one that cannot be had ends the start.
func New(ctx context.Context, cfg Config) (*Guest, error) {
	g := &Guest{cfg: cfg, held: map[string]string{}, wake: make(chan struct{}, 1), looked: make(chan struct{}),
		trials:    trials{reads: fresh.Reads[types.UID, struct{}]{Apart: tryEvery}},
		wrongPods: map[string]map[types.UID]bool{}, toldOther: map[types.UID]string{},
		waiting: waiting{pods: map[types.UID]*corev1.Pod{}, sets: map[types.UID]int{}}}
	var err error
	g.client, err = kubernetes.NewForConfig(cfg.API)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	err = suits(ctx, g.client)
	if err != nil {
		return nil, err
	}
	g.own, err = everynode.NewForConfig(cfg.API)
	if err != nil {
		return nil, err
	}
	self, err := g.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask the API which account this is: %w", err)
	}
	g.account = self.Status.UserInfo.Username
	g.webhook, err = asked(cfg, g.account)
	if err != nil {
		return nil, err
	}
	g.listen, err = net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("answer at %s: %w; choose another address with --webhook-listen", cfg.Listen, err)
	}
	return g, nil
}

// asked makes the webhook, which reads without a limit of its own: the API server asks as often as pods are made, and a
// question that waits for its turn too long would be answered as if the API was away.
func asked(cfg Config, account string) (*webhook.Server, error) {
	reading := rest.CopyConfig(cfg.API)
	reading.QPS, reading.RateLimiter = -1, nil
	api, err := kubernetes.NewForConfig(reading)
	if err != nil {
		return nil, fmt.Errorf("make the webhook's client: %w", err)
	}
	own, err := everynode.NewForConfig(reading)
	if err != nil {
		return nil, fmt.Errorf("make the webhook's client of our own kinds: %w", err)
	}
	return webhook.New(webhook.Config{
		Client: api, Own: own, Account: account, Maker: cfg.Maker, Fail: cfg.Fail, Registerer: cfg.Registerer,
	})
}

// Answers reports whether the API server's questions are answered by this replica. Before that, and once it ends, they
// are for others.
func (g *Guest) Answers() bool { return g.webhook.Serves() }

// AddTo has a manager run the webhook in every replica, and the rest where it leads.
func (g *Guest) AddTo(mgr manager.Manager) error {
	objects := mgr.GetCache()
	err := mgr.Add(everywhere(func(ctx context.Context) error { return g.answer(ctx, objects) }))
	if err != nil {
		return err
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return g.lead(ctx, objects) }))
	if err != nil {
		return err
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return g.leadStartups(ctx, objects) }))
}

// everywhere runs in every replica.
type everywhere func(context.Context) error

// Start implements manager.Runnable.
func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection tells the manager that those that stand by run it too.
func (everywhere) NeedLeaderElection() bool { return false }

// answer runs the webhook, with what it knows of nodes, pods and revisions.
func (g *Guest) answer(ctx context.Context, objects cache.Cache) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("webhook"))
	w := g.webhook
	var synced []toolscache.DoneChecker
	for _, s := range []struct {
		of        client.Object
		set, drop func(any)
	}{
		{&corev1.Node{}, as(w.SetNode), as(func(n *corev1.Node) { w.DeleteNode(n.Name) })},
		{&corev1.Pod{}, as(w.SetPod), as(w.DeletePod)},
		{&appsv1.ControllerRevision{}, as(w.SetRevision), as(w.DeleteRevision)},
		{&appsv1.DaemonSet{}, as(w.SetSet), as(w.DeleteSet)},
	} {
		done, err := follow(ctx, objects, s.of, s.set, s.drop)
		if err != nil {
			return err
		}
		synced = append(synced, done)
	}
	if !toolscache.WaitFor(ctx, "", synced...) {
		return nil
	}
	go g.keepCertificate(ctx)
	g.lookAtRights(ctx)
	go g.keepLookingAtRights(ctx)
	for !g.webhook.Ready() {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
	klog.FromContext(ctx).Info("The webhook answers", "at", g.listen.Addr().String(), "account", g.account)
	return g.webhook.Serve(ctx, g.listen)
}

// as has a function take objects of its type only.
func as[T any](do func(T)) func(any) {
	return func(obj any) {
		last, gone := obj.(toolscache.DeletedFinalStateUnknown)
		if gone {
			obj = last.Obj
		}
		o, ok := obj.(T)
		if ok {
			do(o)
		}
	}
}

// follow tells of every object of a kind.
func follow(ctx context.Context, objects cache.Cache, of client.Object, set, drop func(any)) (toolscache.DoneChecker,
	error) {
	informer, err := objects.GetInformer(ctx, of, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", of, err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: set, UpdateFunc: func(_, obj any) { set(obj) }, DeleteFunc: drop,
	})
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", of, err)
	}
	return registration.HasSyncedChecker(), nil
}

// registered are the options of the webhook's registration with what is trusted now.
func (g *Guest) registered(trusted []byte) registration.Options {
	return registration.Options{
		URL: g.cfg.URL, Namespace: g.cfg.Namespace, Service: g.cfg.Service, Trusted: trusted,
		Maker: g.cfg.Maker, Account: g.account, Fail: g.cfg.Fail,
	}
}

// nudge has the leader look soon.
func (g *Guest) nudge() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

func (g *Guest) nudgeIf(due bool) {
	if due {
		g.nudge()
	}
}

// errNotAsked says that a webhook is not asked about a namespace.
var errNotAsked = errors.New("the API server does not ask the webhook about DaemonSets of this namespace: " +
	"is the webhook reachable, and the namespace not exempt?")
