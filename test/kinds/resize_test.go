package kinds

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Several containers of a pod get more and less at once, by a replacement and by a patch, and stay guaranteed what they have;
// a quota knows what they sum up to.
func resizedTogether(t *testing.T, c cluster) {
	ctx, core := t.Context(), c.Client.CoreV1()
	pods := core.Pods(c.namespace)
	must(core.ResourceQuotas(c.namespace).Create(ctx, &corev1.ResourceQuota{ObjectMeta: named("q"), Spec: corev1.ResourceQuotaSpec{
		Hard: amounts("requests.cpu", "100m", "requests.memory", "200Mi")}}, metav1.CreateOptions{}))(t)
	c.Eventually("the quota is known", used(c, "q", amounts("requests.cpu", "0")))
	pod := onePod("three")
	pod.Spec.Containers = nil
	for i, has := range []corev1.ResourceList{amounts("cpu", "10m", "memory", "20Mi"), amounts("cpu", "20m", "memory", "30Mi"), amounts("cpu", "30m", "memory", "40Mi")} {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: "everynode.io/demo:v1",
			Resources: corev1.ResourceRequirements{Requests: has, Limits: has}})
	}
	must(pods.Create(ctx, pod, metav1.CreateOptions{}))(t)
	runs := func(want string) func(context.Context) error {
		return func(ctx context.Context) error {
			p := must(pods.Get(ctx, "three", metav1.GetOptions{}))(t)
			spec, has := "", ""
			for i, container := range p.Spec.Containers {
				r := container.Resources
				spec += fmt.Sprint(r.Requests.Cpu(), "/", r.Limits.Cpu(), " ", r.Requests.Memory(), "/", r.Limits.Memory(), " ")
				if i < len(p.Status.ContainerStatuses) && p.Status.ContainerStatuses[i].Resources != nil {
					r := p.Status.ContainerStatuses[i].Resources
					has += fmt.Sprint(r.Requests.Cpu(), "/", r.Limits.Cpu(), " ", r.Requests.Memory(), "/", r.Limits.Memory(), " ")
				}
			}
			if spec != want || has != want || p.Status.QOSClass != corev1.PodQOSGuaranteed {
				return fmt.Errorf("it should have %s, and has %s, class %s", spec, has, p.Status.QOSClass)
			}
			for _, s := range p.Status.ContainerStatuses {
				if s.RestartCount != 0 {
					return fmt.Errorf("%s was restarted", s.Name)
				}
			}
			return nil
		}
	}
	c.Eventually("it runs", runs("10m/10m 20Mi/20Mi 20m/20m 30Mi/30Mi 30m/30m 40Mi/40Mi "))

	// More for two and less for the third, by a replacement.
	c.Eventually("the replacement is taken", func(ctx context.Context) error {
		p := must(pods.Get(ctx, "three", metav1.GetOptions{}))(t)
		for i, has := range []corev1.ResourceList{amounts("cpu", "15m", "memory", "25Mi"), amounts("cpu", "25m", "memory", "35Mi"), amounts("cpu", "25m", "memory", "35Mi")} {
			p.Spec.Containers[i].Resources = corev1.ResourceRequirements{Requests: has, Limits: has}
		}
		_, err := pods.UpdateResize(ctx, "three", p, metav1.UpdateOptions{})
		return err
	})
	c.Eventually("it has that", runs("15m/15m 25Mi/25Mi 25m/25m 35Mi/35Mi 25m/25m 35Mi/35Mi "))
	c.Eventually("the quota counts it", used(c, "q", amounts("requests.cpu", "65m", "requests.memory", "95Mi")))

	// CPU for one and memory for another, by a patch.
	patch := `{"spec":{"containers":[
		{"name":"c0","resources":{"requests":{"cpu":"30m"},"limits":{"cpu":"30m"}}},
		{"name":"c1","resources":{"requests":{"cpu":"5m","memory":"45Mi"},"limits":{"cpu":"5m","memory":"45Mi"}}},
		{"name":"c2","resources":{"requests":{"memory":"30Mi"},"limits":{"memory":"30Mi"}}}]}}`
	must(pods.Patch(ctx, "three", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "resize"))(t)
	c.Eventually("it has that, too", runs("30m/30m 25Mi/25Mi 5m/5m 45Mi/45Mi 25m/25m 30Mi/30Mi "))
	c.Eventually("the quota counts it", used(c, "q", amounts("requests.cpu", "60m", "requests.memory", "100Mi")))

	// Each alone would fit.
	patch = `{"spec":{"containers":[
		{"name":"c0","resources":{"requests":{"cpu":"55m"},"limits":{"cpu":"55m"}}},
		{"name":"c1","resources":{"requests":{"cpu":"30m"},"limits":{"cpu":"30m"}}}]}}`
	_, err := pods.Patch(ctx, "three", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "resize")
	refused(t, err, metav1.StatusReasonForbidden, "exceeded quota: q")
}
