package daemonset

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// A node on which no pod can be made, by its variant, is not waited for as the first: another one is it at once.
func TestANodeWithoutAPodIsNotTheFirst(t *testing.T) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	for i := range 5 {
		a.add(sizedNode(fmt.Sprint("n", i), []string{"xl", "s"}[i/4], 4))
	}
	large := testVariant("large", "xl", "{}", "")
	large.Spec.Resources = map[string]v1alpha1.VariantResources{"c": {
		Requests: map[corev1.ResourceName]string{"memory": "quantity('128Mi')"},
		Limits:   map[corev1.ResourceName]string{"memory": "quantity('32Mi')"},
	}}
	a.add(large)
	p := smallCanary(v1alpha1.ApprovalAutomatic)
	all := intstr.FromString("100%")
	p.Spec.Waves, p.Spec.Failure.Max, p.Spec.Images = nil, &all, v1alpha1.ImagesPinned
	a.add(p)
	a.started = func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "c", Ready: true, ImageID: "demo@sha256:" + strings.Repeat("a", 64),
		}}
	}
	defer startWithVariants(t, a)()
	a.add(testDaemonSet("logs"))
	eventually(t, func() string {
		if got := images(a.fakeAPI); len(got) != 1 {
			return fmt.Sprint("pods have ", got)
		}
		return ""
	})
}
