package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/test/scale/usage"
)

// maxGreedyObjects bounds what greedy clients leave in the database.
const maxGreedyObjects = 20000

// greedyNamespace is where they are, with all that they make.
const greedyNamespace = "greedy"

// greedyResult is a rollout without and with greedy clients.
type greedyResult struct {
	alone, crowded phase
	lists, creates int64
	peak           int64
}

// measureGreedy rolls out twice, the second time while clients list all pods and create
// objects without a pause, each with an account of its own. It fails if a node turns not
// ready meanwhile.
func measureGreedy(ctx context.Context, o options, clients int) (r greedyResult, err error) {
	b, cleanUp, err := newBench(ctx, o)
	if err != nil {
		return r, err
	}
	defer cleanUp()
	if err := b.nodesReady(ctx); err != nil {
		return r, err
	}
	if err := b.create(ctx); err != nil {
		return r, err
	}
	b.settle()
	r.alone, err = b.time(ctx, func(ctx context.Context) error { return b.rollOut(ctx, "everynode.io/demo:v2") })
	if err != nil {
		return r, err
	}
	b.settle()
	accounts, err := b.greedyAccounts(ctx, clients)
	if err != nil {
		return r, err
	}
	crowd := &crowd{}
	stop := crowd.start(ctx, accounts)
	defer stop()
	b.settle() // The crowd is there before the rollout begins.
	unready := b.watchNodes(ctx)
	r.crowded, err = b.time(ctx, func(ctx context.Context) error { return b.rollOut(ctx, "everynode.io/demo:v1") })
	if err != nil {
		return r, err
	}
	// Silence of a node is noticed only after a while.
	select {
	case <-ctx.Done():
		return r, ctx.Err()
	case <-time.After(time.Minute):
	}
	stop()
	if err := unready(); err != nil {
		return r, err
	}
	r.lists, r.creates = crowd.lists.Load(), crowd.creates.Load()
	whole, err := usage.Of(b.server.Process.Pid)
	r.peak = whole.Peak
	return r, err
}

// greedyAccounts makes service accounts that may list pods, and create and delete ConfigMaps.
func (b *bench) greedyAccounts(ctx context.Context, n int) ([]kubernetes.Interface, error) {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	if _, err := b.client.CoreV1().Namespaces().Create(
		ctx, &corev1.Namespace{ObjectMeta: meta(greedyNamespace)}, metav1.CreateOptions{},
	); err != nil {
		return nil, err
	}
	role := &rbacv1.ClusterRole{ObjectMeta: meta(greedyNamespace), Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "delete"}},
	}}
	if _, err := b.client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta(greedyNamespace),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: greedyNamespace},
		Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:" + greedyNamespace},
		},
	}
	if _, err := b.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	var out []kubernetes.Interface
	for i := range n {
		name := fmt.Sprintf("client-%d", i)
		accounts := b.client.CoreV1().ServiceAccounts(greedyNamespace)
		_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta(name)}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		token, err := accounts.CreateToken(
			ctx, name,
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(3600))}},
			metav1.CreateOptions{},
		)
		if err != nil {
			return nil, err
		}
		config := restclient.AnonymousClientConfig(b.config)
		config.BearerToken, config.QPS = token.Status.Token, -1
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		out = append(out, client)
	}
	return out, nil
}

// crowd is greedy clients at work.
type crowd struct{ lists, creates atomic.Int64 }

// start lets them loose, each with a hand that lists and one that creates; what it
// returns stops them, and may be called twice.
func (c *crowd) start(ctx context.Context, clients []kubernetes.Interface) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, client := range clients {
		// Being refused is what they deserve; they try again at once.
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); err == nil {
					c.lists.Add(1)
				}
			}
		})
		wg.Go(func() {
			for ctx.Err() == nil {
				c.create(ctx, client.CoreV1().ConfigMaps(greedyNamespace))
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// create makes an object, and removes it again when there are too many.
func (c *crowd) create(ctx context.Context, objects typedcorev1.ConfigMapInterface) {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "greed-"}, Data: map[string]string{"a": "b"}}
	made, err := objects.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return
	}
	if c.creates.Add(1) > maxGreedyObjects {
		_ = objects.Delete(ctx, made.Name, metav1.DeleteOptions{}) // One more or less does not matter.
	}
}

// watchNodes looks every second whether all nodes are ready. What it returns ends that
// and says which node was not.
func (b *bench) watchNodes(ctx context.Context) func() error {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		for {
			select {
			case <-ctx.Done():
				done <- nil
				return
			case <-time.After(time.Second):
			}
			list, err := b.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				continue // The end of the watch, or of the server, which others notice.
			}
			for i := range list.Items {
				if !node.IsReady(&list.Items[i]) {
					done <- fmt.Errorf("node %s turned not ready", list.Items[i].Name)
					return
				}
			}
		}
	}()
	return func() error { cancel(); return <-done }
}
