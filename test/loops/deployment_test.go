package loops

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/pod"
	"github.com/everynode/everynode/internal/testenv"
)

func web(edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"kubernetes.io/change-cause": "first"}}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{Name: "main", Image: "everynode.io/demo:v1"}}}},
	}}
	for _, edit := range edits {
		edit(d)
	}
	return d
}

// deploymentCluster is a control plane with what the tests ask about it, in a namespace.
type deploymentCluster struct {
	*testenv.Env
	t         *testing.T
	namespace string
}

// in makes a namespace for one test.
func in(t *testing.T, e *testenv.Env, namespace string, labels map[string]string) deploymentCluster {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: labels}}
	if _, err := e.Client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return deploymentCluster{e, t, namespace}
}

func (c deploymentCluster) create(d *appsv1.Deployment) {
	c.t.Helper()
	if _, err := c.Client.AppsV1().Deployments(c.namespace).Create(c.t.Context(), d, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c deploymentCluster) patch(format string, args ...any) {
	c.t.Helper()
	patch := fmt.Sprintf(format, args...)
	if _, err := c.Client.AppsV1().Deployments(c.namespace).Patch(c.t.Context(), "web", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		c.t.Fatalf("patch with %s: %v", patch, err)
	}
}

func (c deploymentCluster) setImage(version string) {
	c.t.Helper()
	c.patch(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"everynode.io/demo:%s"}]}}}}`, version)
}

// done waits until the Deployment has rolled out its present generation with the
// number of the template, and returns it.
func (c deploymentCluster) done(what, revision string) (d *appsv1.Deployment) {
	c.t.Helper()
	c.Eventually(what, func(ctx context.Context) (err error) {
		if d, err = c.Client.AppsV1().Deployments(c.namespace).Get(ctx, "web", metav1.GetOptions{}); err != nil {
			return err
		}
		s, want := d.Status, *d.Spec.Replicas
		for _, condition := range s.Conditions {
			if condition.Type == appsv1.DeploymentProgressing && condition.Reason != "NewReplicaSetAvailable" {
				return fmt.Errorf("the Deployment is %s", condition.Reason)
			}
		}
		if s.ObservedGeneration < d.Generation || s.Replicas != want || s.UpdatedReplicas != want || s.AvailableReplicas != want || *s.TerminatingReplicas != 0 {
			return fmt.Errorf("the status is %+v, want %d of everything", s, want)
		}
		if got := d.Annotations["deployment.kubernetes.io/revision"]; got != revision {
			return fmt.Errorf("the revision is %q, want %q", got, revision)
		}
		return nil
	})
	return d
}

// sets lists the Deployment's ReplicaSets: by revision, how many pods they have.
func (c deploymentCluster) sets() map[string]int32 {
	c.t.Helper()
	list, err := c.Client.AppsV1().ReplicaSets(c.namespace).List(c.t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]int32{}
	for _, s := range list.Items {
		if s.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == "" || !strings.HasPrefix(s.Name, "web-") {
			c.t.Errorf("ReplicaSet %s has the labels %v", s.Name, s.Labels)
		}
		out[s.Annotations["deployment.kubernetes.io/revision"]] = s.Status.Replicas
	}
	return out
}

func (c deploymentCluster) expectSets(want string) {
	c.t.Helper()
	if got := fmt.Sprint(c.sets()); got != want {
		c.t.Errorf("the pods by revision are %s, want %s", got, want)
	}
}

// watchPods returns what happens to pods from a version on. It ends with the test,
// or when that takes far too long.
func (c deploymentCluster) watchPods(version string) <-chan watch.Event {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	c.t.Cleanup(cancel)
	w, err := c.Client.CoreV1().Pods(c.namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(w.Stop)
	return w.ResultChan()
}

// TestDeployments has one control plane for all: each test has a namespace.
func TestDeployments(t *testing.T) {
	t.Parallel()
	e := testenv.Start(t, testenv.SimulatedNodes(3))
	for name, test := range map[string]func(t *testing.T, e *testenv.Env){
		"out and back": rollOutAndBack, "recreate": recreate, "refused pods": refusedPods, "budget": budget, "many": many,
	} {
		t.Run(name, func(t *testing.T) { test(t, e.For(t)) })
	}
}

func rollOutAndBack(t *testing.T, e *testenv.Env) {
	c := in(t, e, "out-and-back", nil)
	c.create(web())
	c.done("the first template is out", "1")
	c.expectSets("map[1:3]")

	c.setImage("v2")
	c.done("the second template is out", "2")
	c.expectSets("map[1:0 2:3]")

	c.setImage("v1")
	c.done("the first template is out again", "3")
	c.expectSets("map[2:0 3:3]")

	pods, err := c.Client.CoreV1().Pods(c.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(pods.Items) != 3 {
		t.Fatalf("there are %d pods, %v; want 3", len(pods.Items), err)
	}
	for _, p := range pods.Items {
		if p.Spec.Containers[0].Image != "everynode.io/demo:v1" || p.DeletionTimestamp != nil {
			t.Errorf("pod %s has the image %s", p.Name, p.Spec.Containers[0].Image)
		}
	}
}

// recreate watches the pods: none of the new template comes before the last of the
// old one is gone. A finalizer keeps that one for as long as the test wants.
func recreate(t *testing.T, e *testenv.Env) {
	c := in(t, e, "recreate", nil)
	c.create(web(func(d *appsv1.Deployment) {
		d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
		d.Spec.Template.Finalizers = []string{"example.com/held"}
	}))
	c.done("the first template is out", "1")
	api := c.Client.CoreV1().Pods(c.namespace)
	old, err := api.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(old.Items) != 3 {
		t.Fatalf("%d pods, %v; want 3", len(old.Items), err)
	}
	seen := c.watchPods(old.ResourceVersion)
	c.setImage("v2")
	c.Eventually("the old pods are being deleted", func(ctx context.Context) error {
		pods, err := api.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if p.DeletionTimestamp == nil {
				return fmt.Errorf("pod %s is not", p.Name)
			}
		}
		return nil
	})
	for _, p := range old.Items {
		if _, err := api.Patch(t.Context(), p.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for left, made := 3, 0; made < 3; {
		event, open := <-seen
		if !open {
			t.Fatalf("the watch ended with %d old pods left and %d made", left, made)
		}
		switch event.Type {
		case watch.Deleted:
			left--
		case watch.Added:
			made++
			if left > 0 {
				t.Errorf("pod %s was made while %d old ones were left", event.Object.(*corev1.Pod).Name, left)
			}
		}
	}
	c.done("the second template is out", "2")
}

// refusedPods has a template that its namespace does not allow.
func refusedPods(t *testing.T, e *testenv.Env) {
	c := in(t, e, "refused-pods", map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	c.create(web(func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = ptr.To[int32](1) }))
	c.Eventually("the Deployment tells that pods are refused, and stops waiting", func(ctx context.Context) error {
		d, err := c.Client.AppsV1().Deployments(c.namespace).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		got := map[appsv1.DeploymentConditionType]appsv1.DeploymentCondition{}
		for _, condition := range d.Status.Conditions {
			got[condition.Type] = condition
		}
		refused := got[appsv1.DeploymentReplicaFailure]
		if refused.Reason != "FailedCreate" || !strings.Contains(refused.Message, "violates PodSecurity") || got[appsv1.DeploymentProgressing].Reason != "ProgressDeadlineExceeded" ||
			got[appsv1.DeploymentAvailable].Reason != "MinimumReplicasUnavailable" || d.Status.UnavailableReplicas != 3 {
			return fmt.Errorf("the status is %+v", d.Status)
		}
		return nil
	})
	if _, err := c.Client.CoreV1().Namespaces().Patch(t.Context(), c.namespace, types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, condition := range c.done("the pods are allowed and come", "1").Status.Conditions {
		if condition.Type == appsv1.DeploymentReplicaFailure {
			t.Errorf("the condition %+v stays", condition)
		}
	}
}

// budget counts the pods that the Deployment wants, of all its sets.
func budget(t *testing.T, e *testenv.Env) {
	c := in(t, e, "budget", nil)
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: ptr.To(intstr.FromString("50%")), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}}
	if _, err := c.Client.PolicyV1().PodDisruptionBudgets(c.namespace).Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect := func(expected, desired, allowed int32) {
		t.Helper()
		c.Eventually(fmt.Sprintf("the budget expects %d pods", expected), func(ctx context.Context) error {
			b, err := c.Client.PolicyV1().PodDisruptionBudgets(c.namespace).Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if s := b.Status; s.ExpectedPods != expected || s.DesiredHealthy != desired || s.DisruptionsAllowed != allowed {
				return fmt.Errorf("the budget is %+v", s)
			}
			return nil
		})
	}
	c.create(web())
	c.done("the first template is out", "1")
	expect(3, 2, 1)
	c.setImage("v2")
	c.done("the second template is out", "2")
	expect(3, 2, 1)
	c.patch(`{"spec":{"replicas":8}}`)
	c.done("it is larger", "2")
	expect(8, 4, 4)
}

// many watches a rollout of many pods: there are never more asked for than allowed, and never
// fewer available than must be.
func many(t *testing.T, e *testenv.Env) {
	const replicas, surge, unavailable = 40, 10, 5
	c := in(t, e, "many", nil)
	c.create(web(func(d *appsv1.Deployment) {
		d.Spec.Replicas = ptr.To[int32](replicas)
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(surge)), MaxUnavailable: ptr.To(intstr.FromInt32(unavailable))}
	}))
	c.done("the first template is out", "1")
	api := c.Client.CoreV1().Pods(c.namespace)
	list, err := api.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	seen := c.watchPods(list.ResourceVersion)
	c.setImage("v2")
	for updated := 0; updated < replicas; {
		event, open := <-seen
		if !open {
			t.Fatalf("the watch ended after %d new pods", updated)
		}
		p := event.Object.(*corev1.Pod)
		pods[p.Name] = p
		if event.Type == watch.Deleted {
			delete(pods, p.Name)
		}
		var available int
		updated = 0
		for _, p := range pods {
			if p.DeletionTimestamp != nil {
				continue
			}
			if pod.IsReady(p) {
				available++
				if p.Spec.Containers[0].Image == "everynode.io/demo:v2" {
					updated++
				}
			}
		}
		if available < replicas-unavailable {
			t.Fatalf("%d pods were available, want at least %d", available, replicas-unavailable)
		}
		if asked := c.asked(); asked > replicas+surge {
			t.Fatalf("the sets were asked for %d pods together, want at most %d", asked, replicas+surge)
		}
	}
	c.done("the second template is out", "2")
	c.expectSets("map[1:0 2:40]")
}

// asked is how many pods the sets are to have together. Pods themselves can be more for
// a moment: a set that shrinks has not removed its own yet when another one grows.
func (c deploymentCluster) asked() (n int32) {
	c.t.Helper()
	sets, err := c.Client.AppsV1().ReplicaSets(c.namespace).List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range sets.Items {
		n += *sets.Items[i].Spec.Replicas
	}
	return n
}

// TestDeploymentRestart stops the control plane in the middle of a rollout.
func TestDeploymentRestart(t *testing.T) {
	t.Parallel()
	e := testenv.Start(t, testenv.SimulatedNodes(3))
	c := in(t, e, "restart", nil)
	c.create(web(func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](20) }))
	c.done("the first template is out", "1")
	c.setImage("v2")
	e.Restart()
	c.done("the second template is out", "2")
	c.expectSets("map[1:0 2:20]")
}
