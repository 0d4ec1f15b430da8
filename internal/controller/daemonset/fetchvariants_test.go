package daemonset

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/fetch"
)

// pullers is told of the pods that are to pull images, of which none ever answers.
type pullers struct {
	policyAPI
	mu    sync.Mutex
	pulls []string
}

func (p *pullers) note(node string, images ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pulls = append(p.pulls, node+" "+strings.Join(images, " "))
	slices.Sort(p.pulls)
	p.pulls = slices.Compact(p.pulls) // who does not answer is asked again
}

func (p *pullers) CreatePod(_ context.Context, made *corev1.Pod) (*corev1.Pod, error) {
	var images []string
	for i := range made.Spec.Containers {
		images = append(images, made.Spec.Containers[i].Image)
	}
	p.note(made.Spec.NodeName, images...)
	return made, nil
}

func (p *pullers) DeletePod(context.Context, string, string, types.UID) error { return nil }

// asked notes requests to agents.
type asked struct {
	policyAPI
	of *pullers
}

func (a asked) PatchPod(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error) {
	p, err := a.policyAPI.PatchPod(ctx, namespace, name, patch)
	if err != nil {
		return nil, err
	}
	r, err := fetch.Of(p.Annotations)
	if err == nil && r != nil {
		var images []string
		for _, i := range r.Images {
			images = append(images, i.Image)
		}
		a.of.note(p.Spec.NodeName, images...)
	}
	return p, err
}

// A node fetches the images that its own pod will have, as its variant says, by its agent and by pods.
func TestImagesOfVariantsAreFetchedOnTheirNodes(t *testing.T) {
	for name, byPods := range map[string]bool{"by pods": true, "by agents": false} {
		t.Run(name, func(t *testing.T) {
			a := policyAPI{newFakeAPI(t), func() bool { return false }}
			for i, size := range []string{"xl", "s", "odd"} {
				n := sizedNode(fmt.Sprint("n", i), size, 4)
				n.Labels[fetch.Name] = "true"
				a.add(n)
			}
			a.add(testVariant("large", "xl", `{"spec":{"containers":[{"name":"c","image":"demo:large"}]}}`, ""))
			odd := testVariant("odd", "odd", "{}", "") // its pod cannot be made
			odd.Spec.Resources = map[string]v1alpha1.VariantResources{"c": {
				Requests: map[corev1.ResourceName]string{"memory": "quantity('128Mi')"},
				Limits:   map[corev1.ResourceName]string{"memory": "quantity('32Mi')"},
			}}
			p, all := smallCanary(v1alpha1.ApprovalAutomatic), intstr.FromString("100%")
			p.Spec.Waves = []v1alpha1.Wave{{Name: "all", Count: new(int32), MaxUnavailable: &all, Fetch: true}}
			*p.Spec.Waves[0].Count = 3
			a.add(p)
			by := &pullers{policyAPI: a}
			defer startWithVariants(t, a, func(c *Config) {
				c.LiveContent, c.Writer = !byPods, asked{policyAPI: a, of: by}
				if byPods {
					c.FetchImage, c.FetchBy = "everynode:1", by
				}
			})()
			a.add(testDaemonSet("logs"))
			wantPhase(t, a, v1alpha1.PhaseComplete, "")
			a.add(odd)
			setImage(t, a.fakeAPI, "logs", "demo:v2")
			eventually(t, func() string {
				by.mu.Lock()
				defer by.mu.Unlock()
				if got, want := fmt.Sprint(by.pulls), "[n0 demo:large n1 demo:v2 n2 demo:v2]"; got != want {
					return "nodes fetch " + got + ", want " + want
				}
				return ""
			})
		})
	}
}
