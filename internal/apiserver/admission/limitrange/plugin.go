// Package limitrange gives containers what a LimitRange of their namespace says that they get, and refuses pods and
// claims that ask for more or less than it allows.
package limitrange

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// annotation tells what was given to a pod.
const annotation = "kubernetes.io/limit-ranger"

var (
	podResource   = corev1.Resource("pods")
	claimResource = corev1.Resource("persistentvolumeclaims")
)

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	limits corev1listers.LimitRangeLister
}

var (
	_ admission.MutationInterface   = &Plugin{}
	_ admission.ValidationInterface = &Plugin{}
)

// New makes the plugin. Requests wait until synced reports that limit ranges can be read.
func New(limits corev1listers.LimitRangeLister, synced func() bool) *Plugin {
	p := &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update), limits: limits}
	p.SetReadyFunc(synced)
	return p
}

// concerns says whether a write is about what limit ranges limit. What a pod asks for stays as it is, unless it is
// resized.
func concerns(a admission.Attributes, of ...schema.GroupResource) bool {
	resource := a.GetResource().GroupResource()
	if resource == podResource && a.GetSubresource() == "resize" {
		return a.GetOperation() == admission.Update && slices.Contains(of, resource)
	}
	return a.GetSubresource() == "" && slices.Contains(of, resource) &&
		(resource != podResource || a.GetOperation() == admission.Create)
}

// Admit implements admission.MutationInterface.
func (p *Plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !concerns(a, podResource) || a.GetOperation() != admission.Create {
		return nil
	}
	return p.each(a, func(l *corev1.LimitRange, obj runtime.Object) error {
		if pod, ok := obj.(*corev1.Pod); ok {
			Give(pod, l)
		}
		return nil
	})
}

// Validate implements admission.ValidationInterface.
func (p *Plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !concerns(a, podResource, claimResource) || leaving(a.GetOldObject()) {
		return nil
	}
	return p.each(a, func(l *corev1.LimitRange, obj runtime.Object) error {
		switch o := obj.(type) {
		case *corev1.Pod:
			return CheckPod(o, l)
		case *corev1.PersistentVolumeClaim:
			return CheckClaim(o, l)
		}
		return nil
	})
}

// leaving says that an object is being deleted: nothing should stand in the way of that.
func leaving(old runtime.Object) bool {
	if old == nil {
		return false
	}
	m, err := meta.Accessor(old)
	return err == nil && m.GetDeletionTimestamp() != nil
}

// each calls f with each limit range of the namespace. Mostly there is none, and that costs a look into memory.
func (p *Plugin) each(a admission.Attributes, f func(*corev1.LimitRange, runtime.Object) error) error {
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	all, err := p.limits.LimitRanges(a.GetNamespace()).List(labels.Everything())
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("unable to %s %v at this time because there was an error enforcing "+
			"limit ranges: %w", a.GetOperation(), a.GetResource(), err))
	}
	slices.SortFunc(all, func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
	for _, l := range all {
		if err := f(l, a.GetObject()); err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	return nil
}
