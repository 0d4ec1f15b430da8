package server_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	restclient "k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/server/standalone"
	"github.com/everynode/everynode/internal/testenv"
)

// TestControllerAloneTakesOver moves the DaemonSets of a running cluster from
// the built-in controller to one that runs by itself, with the permissions of
// the example and no others: no pod is restarted, and the work goes on.
func TestControllerAloneTakesOver(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t, testenv.SimulatedNodes(3))
	ctx := context.Background()
	create(t, env)
	env.Eventually("the built-in controller makes the pods", updated(env, 1, 3))
	before := podUIDs(t, env)

	env.Restart(func(o *config.Options) { o.NoDaemonSetController = true })
	config := limited(t, env)
	runCtx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- standalone.Run(runCtx, standalone.Options{Config: config, LeaderElection: true,
			LeaseNamespace: "kube-system", LeaseName: "everynode-daemonset-controller"})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the controller ended with: %v", err)
		}
	})
	// A change of the strategy is observed; nothing is restarted for it.
	patch(t, env, `{"spec":{"minReadySeconds":1}}`)
	env.Eventually("the controller observes the change", updated(env, 2, 3))
	if after := podUIDs(t, env); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("pods after the change of controllers: %v, want the same as before: %v", after, before)
	}
	patch(t, env, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"everynode.io/demo:v2"}]}}}}`)
	env.Eventually("the controller rolls the new template out", updated(env, 3, 3))
	for node, uid := range podUIDs(t, env) {
		if before[node] == uid {
			t.Errorf("the pod on %s was not replaced", node)
		}
	}
}

// A controller that sees that another leads writes nothing more, though it still has decisions to carry out until it
// ends.
func TestControllerAloneStopsWritingWhenAnotherLeads(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t, testenv.SimulatedNodes(3), func(o *config.Options) { o.NoDaemonSetController = true })
	ctx := t.Context()
	create(t, env)
	leases := env.Client.CoordinationV1().Leases("kube-system")
	config := restclient.CopyConfig(env.Config)
	var taken atomic.Bool
	seen := make(chan struct{}, 100)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			is := taken.Load() && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/leases/controller")
			answer, err := next.RoundTrip(r)
			if is {
				seen <- struct{}{}
			}
			return answer, err
		})
	})
	done := make(chan error, 1)
	go func() {
		done <- standalone.Run(ctx, standalone.Options{Config: config, LeaderElection: true,
			LeaseNamespace: "kube-system", LeaseName: "controller"})
	}()
	env.Eventually("the controller makes the pods", updated(env, 1, 3))
	before := podUIDs(t, env)
	env.Eventually("another takes the lease", func(ctx context.Context) error {
		lease, err := leases.Get(ctx, "controller", metav1.GetOptions{})
		if err != nil {
			return err
		}
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = ptr.To("another"), &metav1.MicroTime{Time: time.Now()}
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	taken.Store(true)
	for range 2 {
		<-seen // it knows of the first when it asks for the second
	}
	patch(t, env, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"everynode.io/demo:v2"}]}}}}`)
	if err := <-done; err == nil || !strings.Contains(err.Error(), "leader election lost") {
		t.Errorf("the controller ended with: %v", err)
	}
	if after := podUIDs(t, env); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("pods after another led: %v, want the same as before: %v", after, before)
	}
}

// roundTripper sends requests.
type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// create creates the DaemonSet that the tests change.
func create(t *testing.T, env *testenv.Env) {
	t.Helper()
	labels := map[string]string{"app": "agent"}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "everynode.io/demo:v1"}}}},
	}}
	_, err := env.Client.AppsV1().DaemonSets("default").Create(t.Context(), ds, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func updated(env *testenv.Env, generation int64, nodes int32) func(context.Context) error {
	return func(ctx context.Context) error {
		ds, err := env.Client.AppsV1().DaemonSets("default").Get(ctx, "agent", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := ds.Status; s.ObservedGeneration < generation || s.UpdatedNumberScheduled != nodes ||
			s.NumberAvailable != nodes {
			return fmt.Errorf("status is %+v", s)
		}
		return nil
	}
}

func podUIDs(t *testing.T, env *testenv.Env) map[string]types.UID {
	t.Helper()
	list, err := env.Client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]types.UID{}
	for _, p := range list.Items {
		out[p.Spec.NodeName] = p.UID
	}
	return out
}

func patch(t *testing.T, env *testenv.Env, text string) {
	t.Helper()
	_, err := env.Client.AppsV1().DaemonSets("default").Patch(context.Background(), "agent",
		types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// limited applies the example's permissions and returns a client configuration
// that has those and no others.
func limited(t *testing.T, env *testenv.Env) *restclient.Config {
	t.Helper()
	ctx := context.Background()
	file, err := os.Open("../../examples/controller-rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	decoder := yaml.NewYAMLOrJSONDecoder(file, 4096)
	var (
		account     corev1.ServiceAccount
		role        rbacv1.ClusterRole
		binding     rbacv1.ClusterRoleBinding
		leaseRole   rbacv1.Role
		leaseAccess rbacv1.RoleBinding
	)
	for _, into := range []any{&account, &role, &binding, &leaseRole, &leaseAccess} {
		if err := decoder.Decode(into); err != nil {
			t.Fatal(err)
		}
	}
	create := func(_ any, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	create(env.Client.CoreV1().ServiceAccounts(account.Namespace).Create(ctx, &account, metav1.CreateOptions{}))
	create(env.Client.RbacV1().ClusterRoles().Create(ctx, &role, metav1.CreateOptions{}))
	create(env.Client.RbacV1().ClusterRoleBindings().Create(ctx, &binding, metav1.CreateOptions{}))
	create(env.Client.RbacV1().Roles(leaseRole.Namespace).Create(ctx, &leaseRole, metav1.CreateOptions{}))
	create(env.Client.RbacV1().RoleBindings(leaseAccess.Namespace).Create(ctx, &leaseAccess, metav1.CreateOptions{}))
	token, err := env.Client.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &restclient.Config{Host: env.Config.Host, BearerToken: token.Status.Token, QPS: -1,
		TLSClientConfig: restclient.TLSClientConfig{CAData: env.Config.CAData}}
}
