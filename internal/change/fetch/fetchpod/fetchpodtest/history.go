// Package fetchpodtest judges for tests what pods that fetch images did, by what a watch of all pods saw.
package fetchpodtest

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
)

// History is what was seen: the nodes on which a pod had its images, those whose daemon was taken away before that, and
// how many pods fetched at once.
type History struct {
	Has   map[string]bool
	Early []string
	Most  int
}

// Read reads a watch of all pods until it ends.
func Read(seen watch.Interface) History {
	h, now := History{Has: map[string]bool{}}, map[string]bool{}
	for e := range seen.ResultChan() {
		p, is := e.Object.(*corev1.Pod)
		switch {
		case !is:
		case fetchpod.Is(p):
			now[p.Name] = true
			if e.Type == watch.Deleted {
				delete(now, p.Name)
			}
			h.Most = max(h.Most, len(now))
			for _, s := range p.Status.ContainerStatuses {
				h.Has[p.Spec.NodeName] = h.Has[p.Spec.NodeName] || s.ImageID != ""
			}
		case p.DeletionTimestamp != nil && metav1.GetControllerOf(p) != nil && !h.Has[p.Spec.NodeName]:
			h.Early = append(h.Early, p.Spec.NodeName)
		}
	}
	return h
}
