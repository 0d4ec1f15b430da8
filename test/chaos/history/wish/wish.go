// Package wish says what users want of an object; pure.
package wish

import (
	"encoding/json"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/revision"
)

// UserKey begins the keys of the labels and taints that users put on nodes and
// pods in a round.
const UserKey = "example.com/"

// Of is the part of an object that only users write, as a text to compare.
func Of(o metav1.Object) string {
	var wish any
	switch o := o.(type) {
	case *appsv1.DaemonSet:
		wish = o.Spec
	case *corev1.Node:
		var taints []string
		for _, t := range o.Spec.Taints {
			if strings.HasPrefix(t.Key, UserKey) {
				taints = append(taints, t.ToString())
			}
		}
		slices.Sort(taints)
		wish = []any{own(o.Labels), taints, o.Spec.Unschedulable}
	case *corev1.Pod:
		wish = own(o.Labels)
	case *v1alpha1.RolloutPolicy:
		wish = o.Spec
	case *v1alpha1.DaemonSetVariant:
		wish = o.Spec
	case *v1alpha1.DaemonSetRollout:
		spec := *o.Spec.DeepCopy()
		if spec.Approved != nil {
			spec.Approved.Change = 0 // the API server fills it in where a user leaves it out
		}
		wish = spec
	case *corev1.ConfigMap, *corev1.Secret:
		return revision.Value(o)
	default:
		return ""
	}
	text, err := json.Marshal(wish)
	if err != nil {
		panic("wish: plain API types do not marshal: " + err.Error())
	}
	return string(text)
}

func own(labels map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range labels {
		if strings.HasPrefix(key, UserKey) {
			out[key] = value
		}
	}
	return out
}
