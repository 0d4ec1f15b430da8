// Package livecontent keeps the annotation by which the volumes of a running pod show another copy of what its
// spec names. With it a node may read that copy: so only the DaemonSet controller writes it, and takes it away, and
// only for immutable copies that the pod's DaemonSet owns, of objects that the pod's spec names. It also keeps the
// annotation by which a node is asked for images: with it a node pulls, and keeps, what it names.
package livecontent

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/everynode/everynode/internal/apiserver/stored"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
)

type plugin struct {
	*admission.Handler
	account string
	stored  *Stored
}

var _ admission.ValidationInterface = &plugin{}

// Stored is where copies are stored. It is filled once the storages are there.
type Stored struct {
	ConfigMaps, Secrets rest.Getter
}

// New makes the plugin; account is the name of the user that writes the annotation.
func New(account string, have *Stored) admission.ValidationInterface {
	return &plugin{Handler: admission.NewHandler(admission.Create, admission.Update), account: account, stored: have}
}

// guarded are the annotations that are the controller's, and what they say.
var guarded = []struct{ name, says string }{
	{content.LiveName, "says what the volumes of a running pod show"},
	{fetch.Name, "says which images a node is to fetch"},
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	is, was, ok := annotations(a)
	if !ok {
		return nil
	}
	pod, _ := a.GetObject().(*corev1.Pod)
	for _, g := range guarded {
		value, has := is[g.name]
		before, had := was[g.name]
		if value == before && has == had {
			continue
		}
		// What a pod shows stays; a request for images may be taken back.
		writes := a.GetOperation() == admission.Update && a.GetSubresource() == "" && pod != nil &&
			(has || g.name == fetch.Name)
		if !writes || a.GetUserInfo().GetName() != p.account {
			return admission.NewForbidden(a, fmt.Errorf("annotation %s %s: "+
				"the DaemonSet controller alone writes it, and nobody takes it away", g.name, g.says))
		}
		if err := p.checkValue(ctx, g.name, pod); err != nil {
			return refused(a, err)
		}
	}
	return nil
}

// annotations returns those that the object of a request has, and had; ok is false for one of no interest.
func annotations(a admission.Attributes) (is, was map[string]string, ok bool) {
	switch obj := a.GetObject().(type) {
	case *corev1.Binding: // its annotations become the pod's
		return obj.Annotations, nil, true
	case *corev1.Pod:
		if old, updated := a.GetOldObject().(*corev1.Pod); updated && a.GetOperation() == admission.Update {
			was = old.Annotations
		}
		return obj.Annotations, was, true
	}
	return nil, nil, false
}

// checkValue returns an error unless the pod may have the annotation as it is.
func (p *plugin) checkValue(ctx context.Context, name string, pod *corev1.Pod) error {
	if name == content.LiveName {
		return p.check(ctx, pod)
	}
	_, err := fetch.Of(pod.Annotations)
	return err
}

// refused is the answer to a request that may not be.
func refused(a admission.Attributes, err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err
	}
	return admission.NewForbidden(a, err)
}

// check returns an error unless the pod is pointed at copies that it may show.
func (p *plugin) check(ctx context.Context, pod *corev1.Pod) error {
	to, err := content.PointingOf(pod.Annotations)
	if err != nil {
		return err
	}
	if err := to.Check(&pod.Spec); err != nil {
		return fmt.Errorf("annotation %s: %w", content.LiveName, err)
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	switch {
	case owner == nil || owner.Kind != "DaemonSet" || owner.APIVersion != appsv1.SchemeGroupVersion.String():
		return errors.New("no DaemonSet owns the pod")
	case to.Content != content.IDOf(pod.Labels[content.RevisionLabel]):
		return fmt.Errorf("annotation %s is for content %s, and label %s for another", content.LiveName, to.Content,
			content.RevisionLabel)
	}
	for _, v := range to.Volumes {
		if err := p.checkCopy(ctx, pod.Namespace, v, owner.UID); err != nil {
			return err
		}
	}
	return nil
}

// checkCopy returns an error unless there is such a copy, which cannot change, and the owner has it.
func (p *plugin) checkCopy(ctx context.Context, namespace string, v content.Pointed, owner types.UID) error {
	var have metav1.Object
	var immutable *bool
	switch v.Kind {
	case content.ConfigMap:
		m, err := stored.Get[*corev1.ConfigMap](ctx, p.stored.ConfigMaps, namespace, v.Copy)
		if err != nil {
			return unread(v, err)
		}
		have, immutable = m, m.Immutable
	case content.Secret:
		s, err := stored.Get[*corev1.Secret](ctx, p.stored.Secrets, namespace, v.Copy)
		if err != nil {
			return unread(v, err)
		}
		have, immutable = s, s.Immutable
	default:
		return fmt.Errorf("annotation %s names a %q", content.LiveName, v.Kind)
	}
	by := metav1.GetControllerOfNoCopy(have)
	isCopy := immutable != nil && *immutable && have.GetLabels()[content.Label] == content.IsCopy
	if !isCopy || by == nil || by.UID != owner {
		return fmt.Errorf("%s %s is no immutable copy of the pod's DaemonSet", v.Kind, v.Copy)
	}
	return nil
}

func unread(v content.Pointed, err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no %s %s", v.Kind, v.Copy)
	}
	return apierrors.NewInternalError(fmt.Errorf("read %s %s: %w", v.Kind, v.Copy, err))
}
