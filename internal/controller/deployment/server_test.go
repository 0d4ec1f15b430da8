package deployment_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

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

// cluster is a control plane with what the tests ask about it.
type cluster struct {
	*testenv.Env
	t *testing.T
}

func start(t *testing.T) cluster { return cluster{testenv.Start(t, testenv.SimulatedNodes(3)), t} }

func (c cluster) create(d *appsv1.Deployment) {
	c.t.Helper()
	if _, err := c.Client.AppsV1().Deployments("default").Create(c.t.Context(), d, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c cluster) patch(format string, args ...any) {
	c.t.Helper()
	patch := fmt.Sprintf(format, args...)
	if _, err := c.Client.AppsV1().Deployments("default").Patch(c.t.Context(), "web", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		c.t.Fatalf("patch with %s: %v", patch, err)
	}
}

func (c cluster) setImage(version string) {
	c.t.Helper()
	c.patch(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"everynode.io/demo:%s"}]}}}}`, version)
}

// done waits until the Deployment has rolled out its present generation with the
// number of the template, and returns it.
func (c cluster) done(what, revision string) (d *appsv1.Deployment) {
	c.t.Helper()
	c.Eventually(what, func(ctx context.Context) (err error) {
		if d, err = c.Client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{}); err != nil {
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
func (c cluster) sets() map[string]int32 {
	c.t.Helper()
	list, err := c.Client.AppsV1().ReplicaSets("default").List(c.t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
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

func (c cluster) expectSets(want string) {
	c.t.Helper()
	if got := fmt.Sprint(c.sets()); got != want {
		c.t.Errorf("the pods by revision are %s, want %s", got, want)
	}
}

func TestRollOutAndBack(t *testing.T) {
	c := start(t)
	c.create(web())
	c.done("the first template is out", "1")
	c.expectSets("map[1:3]")

	c.setImage("v2")
	c.done("the second template is out", "2")
	c.expectSets("map[1:0 2:3]")

	c.setImage("v1")
	c.done("the first template is out again", "3")
	c.expectSets("map[2:0 3:3]")

	pods, err := c.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.Spec.Containers[0].Image != "everynode.io/demo:v1" || p.DeletionTimestamp != nil {
			t.Errorf("pod %s has the image %s", p.Name, p.Spec.Containers[0].Image)
		}
	}
	if len(pods.Items) != 3 {
		raw, _ := json.Marshal(pods.Items)
		t.Errorf("there are %d pods, want 3: %s", len(pods.Items), raw)
	}
}
