package storageresize

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"
)

type classes map[string]*storagev1.StorageClass

func (c classes) Get(name string) (*storagev1.StorageClass, error) {
	if class := c[name]; class != nil {
		return class, nil
	}
	return nil, apierrors.NewNotFound(storagev1.Resource("storageclasses"), name)
}

func claim(size, class string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{}
	c.Spec.StorageClassName = &class
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	c.Status.Phase = phase
	return c
}

func TestGrowth(t *testing.T) {
	known := classes{"grows": {AllowVolumeExpansion: ptr.To(true)}, "stays": {AllowVolumeExpansion: ptr.To(false)}, "silent": {}}
	const unbound, fixed = "Only bound persistent volume claims can be expanded", "the storageclass that provisions the pvc must support resize"
	for name, c := range map[string]struct {
		old, now          *corev1.PersistentVolumeClaim
		subresource, want string
	}{
		"grows":         {claim("1Gi", "grows", corev1.ClaimBound), claim("2Gi", "grows", corev1.ClaimBound), "", ""},
		"shrinks":       {claim("2Gi", "stays", corev1.ClaimBound), claim("1Gi", "stays", corev1.ClaimBound), "", ""},
		"as it was":     {claim("1Gi", "stays", corev1.ClaimPending), claim("1024Mi", "stays", corev1.ClaimPending), "", ""},
		"its status":    {claim("1Gi", "stays", corev1.ClaimBound), claim("2Gi", "stays", corev1.ClaimBound), "status", ""},
		"not bound":     {claim("1Gi", "grows", corev1.ClaimPending), claim("2Gi", "grows", corev1.ClaimPending), "", unbound},
		"class stays":   {claim("1Gi", "stays", corev1.ClaimBound), claim("2Gi", "stays", corev1.ClaimBound), "", fixed},
		"class silent":  {claim("1Gi", "silent", corev1.ClaimBound), claim("2Gi", "silent", corev1.ClaimBound), "", fixed},
		"class gone":    {claim("1Gi", "none", corev1.ClaimBound), claim("2Gi", "none", corev1.ClaimBound), "", fixed},
		"no class":      {claim("1Gi", "", corev1.ClaimBound), claim("2Gi", "", corev1.ClaimBound), "", fixed},
		"another class": {claim("1Gi", "stays", corev1.ClaimBound), claim("2Gi", "grows", corev1.ClaimBound), "", fixed},
	} {
		a := admission.NewAttributesRecord(c.now, c.old, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), "ns", "c",
			corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), c.subresource, admission.Update, &metav1.UpdateOptions{}, false, nil)
		err := New(known, func() bool { return true }).Validate(t.Context(), a, nil)
		if c.want == "" && err != nil || c.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
