package client

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
)

// deletable are the names of the kind whose deletion can be planned, as kubectl takes them.
var deletable = []string{"daemonsetvariant", "daemonsetvariants", "dsv"}

// addDeletions takes in what is to be deleted beside what the documents say: "daemonsetvariant/NAME", in the namespace.
func (m *manifests) addDeletions(of []string, namespace string) error {
	for _, text := range of {
		kind, name, _ := strings.Cut(text, "/")
		kind = strings.TrimSuffix(strings.ToLower(kind), "."+v1alpha1.GroupVersion.Group)
		switch {
		case !slices.Contains(deletable, kind) || name == "":
			return fmt.Errorf("--delete %s: only the deletion of a daemonsetvariant/NAME can be planned", text)
		case slices.Contains(m.deleted, name):
			return fmt.Errorf("--delete %s: it is named twice", text)
		}
		for _, v := range m.variants {
			if v.Name == name && (v.Namespace == "" || v.Namespace == namespace) {
				return fmt.Errorf("--delete %s: the file has a DaemonSetVariant of that name", text)
			}
		}
		m.deleted = append(m.deleted, name)
	}
	return nil
}

// without takes the variants that are to be deleted away.
func (m *manifests) without(all []*v1alpha1.DaemonSetVariant, namespace string) []*v1alpha1.DaemonSetVariant {
	return slices.DeleteFunc(all, func(v *v1alpha1.DaemonSetVariant) bool {
		return v.Namespace == namespace && slices.Contains(m.deleted, v.Name)
	})
}

// mustBeThere says which variant that is to be deleted was not read, and why.
func (l *lists) mustBeThere(ctx context.Context, m *manifests, s *survey.Survey) error {
	for _, name := range m.deleted {
		if slices.ContainsFunc(s.Variants, func(v *v1alpha1.DaemonSetVariant) bool {
			return v.Namespace == l.namespace && v.Name == name
		}) {
			continue
		}
		_, err := l.own.DaemonSetVariants(l.namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("there is no DaemonSetVariant %s/%s that could be deleted", l.namespace, name)
		case err != nil:
			return fmt.Errorf("read DaemonSetVariant %s/%s: %w", l.namespace, name, err)
		}
		return fmt.Errorf("DaemonSetVariant %s/%s is not in the list of all: it is new, or they may not be listed",
			l.namespace, name)
	}
	return nil
}

// idle says which of the variants choose no DaemonSet, and did not.
func idle(o *survey.Objects, varied []types.NamespacedName, of []*appsv1.DaemonSet) (out []string) {
	for _, name := range varied {
		if !slices.ContainsFunc(of, func(ds *appsv1.DaemonSet) bool { return varies(o, name, ds) }) {
			out = append(out, fmt.Sprintf("DaemonSetVariant %s chooses no DaemonSet", name))
		}
	}
	return out
}
