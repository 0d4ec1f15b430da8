package loops

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/objects/pod"
	"github.com/everynode/everynode/internal/testenv"
)

// TestPartsOfARunningPod resizes a pod that runs and adds a container to it, within its namespace's quota, limits and standard.
func TestPartsOfARunningPod(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t, testenv.SimulatedNodes(1))
	const namespace = "tight"
	if _, err := env.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	amount := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	if _, err := env.Client.CoreV1().ResourceQuotas(namespace).Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("500m")}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := env.Client.CoreV1().LimitRanges(namespace).Create(t.Context(), &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "l"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Min: amount("50m")}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods := env.Client.CoreV1().Pods(namespace)
	env.Eventually("the pod is made", func(ctx context.Context) error {
		_, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"app": "a"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "main", Image: "everynode.io/demo:v1", Resources: corev1.ResourceRequirements{Requests: amount("100m")}}}}}, metav1.CreateOptions{})
		return err
	})
	env.Eventually("the pod is ready", func(ctx context.Context) error {
		p, err := pods.Get(ctx, "p", metav1.GetOptions{})
		if err == nil && !pod.IsReady(p) {
			err = fmt.Errorf("its status is %+v", p.Status)
		}
		return err
	})
	patch := func(sub, text string) (*corev1.Pod, error) {
		return pods.Patch(t.Context(), "p", types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{}, sub)
	}
	size := func(cpu string) string {
		return `{"metadata":{"labels":{"app":"b"}},"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"` + cpu + `"}}}]}}`
	}
	before, err := pods.Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now, err := patch("resize", size("300m"))
	if err != nil {
		t.Fatal(err)
	}
	if now.Generation != before.Generation+1 || now.Labels["app"] != "a" || now.Spec.Containers[0].Resources.Requests.Cpu().String() != "300m" {
		t.Errorf("resized, it is %+v %+v", now.ObjectMeta, now.Spec.Containers[0].Resources)
	}
	env.Eventually("the node gives it", func(ctx context.Context) error {
		p, err := pods.Get(ctx, "p", metav1.GetOptions{})
		if err == nil && p.Status.ContainerStatuses[0].AllocatedResources.Cpu().String() != "300m" {
			err = fmt.Errorf("its status is %+v", p.Status)
		}
		return err
	})
	// What is used is counted again beside the writes, and by a count of before this one would fit.
	env.Eventually("the quota has it", func(ctx context.Context) error {
		q, err := env.Client.CoreV1().ResourceQuotas(namespace).Get(ctx, "q", metav1.GetOptions{})
		if used := q.Status.Used[corev1.ResourceRequestsCPU]; err == nil && used.String() != "300m" {
			err = fmt.Errorf("it has %s", used.String())
		}
		return err
	})
	if _, err := patch("resize", size("600m")); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: q, requested: requests.cpu=300m, used: requests.cpu=300m, limited: requests.cpu=500m") {
		t.Errorf("more than the quota: %v", err)
	}
	if _, err := patch("resize", size("10m")); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "minimum cpu usage per Container is 50m") {
		t.Errorf("less than the limit range: %v", err)
	}
	if _, err := patch("", size("200m")); !apierrors.IsInvalid(err) {
		t.Errorf("resized as a whole: %v", err)
	}
	if _, err := patch("ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"root","image":"i","securityContext":{"privileged":true}}]}}`); !apierrors.IsForbidden(err) {
		t.Errorf("a container that the namespace does not allow: %v", err)
	}
	now, err = patch("ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"look","image":"everynode.io/demo:v1","targetContainerName":"main"}]}}`)
	if err != nil || len(now.Spec.EphemeralContainers) != 1 || now.Spec.EphemeralContainers[0].ImagePullPolicy != corev1.PullIfNotPresent {
		t.Fatalf("a container added: %v, %+v", err, now.Spec.EphemeralContainers)
	}
	env.Eventually("it runs", func(ctx context.Context) error {
		p, err := pods.Get(ctx, "p", metav1.GetOptions{})
		if err == nil && (len(p.Status.EphemeralContainerStatuses) != 1 || p.Status.EphemeralContainerStatuses[0].State.Running == nil) {
			err = fmt.Errorf("its status is %+v", p.Status)
		}
		return err
	})
}
