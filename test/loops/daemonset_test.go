package loops

import (
	"context"
	"fmt"
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/internal/testenv"
)

// TestInAControlPlane goes through a DaemonSet's life in a whole control plane
// with simulated nodes, with a restart of everything in the middle.
func TestInAControlPlane(t *testing.T) {
	t.Parallel()
	const nodes = 20
	env := testenv.Start(t, testenv.SimulatedNodes(nodes))
	ctx := t.Context()
	createDaemonSet(t, env, "logs")
	daemonSetSettles(t, env, nodes)
	first := daemonPods(t, env)

	env.Restart()
	patchDaemonSet(t, env, `{"metadata":{"labels":{"restarted":"yes"}}}`)
	daemonSetSettles(t, env, nodes)
	if after := daemonPods(t, env); !maps.Equal(after, first) {
		t.Errorf("a restart and a new label changed the pods from\n%v to\n%v", first, after)
	}

	patchDaemonSet(t, env, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"demo:v2"}]}}}}`)
	daemonSetSettles(t, env, nodes)
	for uid, node := range daemonPods(t, env) {
		if first[uid] != "" {
			t.Errorf("the pod on %s was not replaced", node)
		}
	}

	if err := env.Client.AppsV1().DaemonSets("default").Delete(ctx, "logs", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually("pods and revisions go with their DaemonSet", func(ctx context.Context) error {
		revisions, err := env.Client.AppsV1().ControllerRevisions("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if n := len(daemonPods(t, env)); n+len(revisions.Items) > 0 {
			return fmt.Errorf("%d pods and %d revisions are left", n, len(revisions.Items))
		}
		return nil
	})
}

// TestReplaceByForce deletes a DaemonSet and makes the same again at once, as
// `kubectl replace --force` does: each time it ends with pods and a revision of its
// own, whatever the garbage collector is at.
func TestReplaceByForce(t *testing.T) {
	t.Parallel()
	const nodes = 20
	env := testenv.Start(t, testenv.SimulatedNodes(nodes))
	createDaemonSet(t, env, "logs")
	daemonSetSettles(t, env, nodes)
	for range 5 {
		if err := env.Client.AppsV1().DaemonSets("default").Delete(t.Context(), "logs", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		createDaemonSet(t, env, "logs")
		daemonSetSettles(t, env, nodes)
		env.Eventually("the DaemonSet has a revision and all pods", func(ctx context.Context) error {
			ds, err := env.Client.AppsV1().DaemonSets("default").Get(ctx, "logs", metav1.GetOptions{})
			if err != nil {
				return err
			}
			revisions, err := env.Client.AppsV1().ControllerRevisions("default").List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			if n := len(revisions.Items); n != 1 || !metav1.IsControlledBy(&revisions.Items[0], ds) {
				return fmt.Errorf("%d revisions are there, and not just its own", n)
			}
			if n := len(daemonPods(t, env)); n != nodes {
				return fmt.Errorf("%d pods are there", n)
			}
			return nil
		})
	}
}

func createDaemonSet(t *testing.T, env *testenv.Env, name string) {
	t.Helper()
	labels := map[string]string{"app": name}
	tenth := intstr.FromString("10%")
	_, err := env.Client.AppsV1().DaemonSets("default").Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo:v1"}}},
			},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &tenth}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func patchDaemonSet(t *testing.T, env *testenv.Env, body string) {
	t.Helper()
	_, err := env.Client.AppsV1().DaemonSets("default").Patch(t.Context(), "logs", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func daemonSetSettles(t *testing.T, env *testenv.Env, nodes int32) {
	t.Helper()
	env.Eventually("every node runs an available pod of the newest template", func(ctx context.Context) error {
		ds, err := env.Client.AppsV1().DaemonSets("default").Get(ctx, "logs", metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := ds.Status
		if s.ObservedGeneration != ds.Generation || s.DesiredNumberScheduled != nodes || s.NumberAvailable != nodes || s.UpdatedNumberScheduled != nodes {
			return fmt.Errorf("generation %d has status %+v, want %d nodes", ds.Generation, s, nodes)
		}
		return nil
	})
}

// daemonPods returns the node of every pod, by UID.
func daemonPods(t *testing.T, env *testenv.Env) map[types.UID]string {
	t.Helper()
	pods, err := env.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[types.UID]string{}
	for _, p := range pods.Items {
		out[p.UID] = p.Spec.NodeName
	}
	return out
}
