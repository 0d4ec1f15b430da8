// Package persistentvolume describes the kind PersistentVolume: storage that is there, and who has it.
package persistentvolume

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
	"github.com/everynode/everynode/internal/apiserver/podspec/warnings"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
	"github.com/everynode/everynode/internal/objects/volume"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[corev1.PersistentVolume, corev1.PersistentVolumeList](resource.Kind{
		GroupVersion: corev1.SchemeGroupVersion, Kind: "PersistentVolume", Plural: "persistentvolumes",
		Singular:   "persistentvolume",
		ShortNames: []string{"pv"}, ClusterScoped: true,
	}, resource.Rules[corev1.PersistentVolume]{
		Default: SetDefaults,
		Status:  func(v *corev1.PersistentVolume) any { return &v.Status },
		PrepareForCreate: func(_ context.Context, v *corev1.PersistentVolume) {
			v.Status.Phase, v.Status.LastPhaseTransitionTime = corev1.VolumePending, ptr.To(metav1.Now())
		},
		Validate: func(_ context.Context, v *corev1.PersistentVolume) field.ErrorList { return Validate(v, nil) },
		ValidateUpdate: func(_ context.Context, v, old *corev1.PersistentVolume) field.ErrorList {
			return append(Validate(v, old), validateStays(v, old)...)
		},
		WarningsOnCreate: func(_ context.Context, v *corev1.PersistentVolume) []string {
			return append(warningsOf(v), notMounted(&v.Spec)...)
		},
		WarningsOnUpdate: func(_ context.Context, v, _ *corev1.PersistentVolume) []string { return warningsOf(v) },
		PrepareStatusForUpdate: func(_ context.Context, v, old *corev1.PersistentVolume) {
			v.Spec = old.Spec
			noteTransition(&v.Status, &old.Status)
		},
		Fields:      func(v *corev1.PersistentVolume) fields.Set { return fields.Set{"name": v.Name} },
		FieldLabels: []string{"name"},
		Table:       volumeTable,
	})
}

// SetDefaults fills in what a volume leaves out.
func SetDefaults(v *corev1.PersistentVolume) {
	if v.Status.Phase == "" {
		v.Status.Phase = corev1.VolumePending
	}
	s := &v.Spec
	if s.PersistentVolumeReclaimPolicy == "" {
		s.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	}
	if s.VolumeMode == nil {
		s.VolumeMode = ptr.To(corev1.PersistentVolumeFilesystem)
	}
	defaults.RoundResources(s.Capacity)
	setSourceDefaults(&s.PersistentVolumeSource)
}

// noteTransition writes down when the phase changed, unless whoever changed it did.
func noteTransition(s, old *corev1.PersistentVolumeStatus) {
	told := s.LastPhaseTransitionTime
	switch {
	case s.Phase == old.Phase && told == nil:
		s.LastPhaseTransitionTime = old.LastPhaseTransitionTime
	case s.Phase != old.Phase && (told == nil || told.Equal(old.LastPhaseTransitionTime)):
		s.LastPhaseTransitionTime = ptr.To(metav1.Now())
	}
}

var volumeTable = table.Of(func(v *corev1.PersistentVolume, now time.Time) []any {
	claim := ""
	if ref := v.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
	}
	phase := string(v.Status.Phase)
	if v.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	mode := "<unset>"
	if v.Spec.VolumeMode != nil {
		mode = string(*v.Spec.VolumeMode)
	}
	return []any{
		v.Name,
		v.Spec.Capacity.Storage().String(),
		volume.AccessModes(v.Spec.AccessModes),
		string(v.Spec.PersistentVolumeReclaimPolicy),
		phase,
		claim,
		volume.Class(v),
		ptr.Deref(v.Spec.VolumeAttributesClassName, "<unset>"),
		v.Status.Reason,
		table.Since(v.CreationTimestamp, now),
		mode,
	}
},
	table.Name,
	table.Column{Name: "Capacity", Description: "How much fits in."},
	table.Column{Name: "Access Modes", Description: "How it can be used by several."},
	table.Column{Name: "Reclaim Policy", Description: "What becomes of it when its claim is gone."},
	table.Column{Name: "Status", Description: "Whether it is free, bound, or was released."},
	table.Column{Name: "Claim", Description: "Who has it."},
	table.Column{Name: "StorageClass", Description: "Its class."},
	table.Column{Name: "VolumeAttributesClass", Description: "The class of its attributes."},
	table.Column{Name: "Reason", Description: "Why it is in this state."},
	table.Age,
	table.Column{Name: "VolumeMode", Description: "Whether pods get a file system or a device.", Wide: true},
)

// notMounted says that no node here can mount the volume, if so.
func notMounted(s *corev1.PersistentVolumeSpec) []string {
	if s.HostPath != nil || s.Local != nil {
		if ptr.Deref(s.VolumeMode, "") == corev1.PersistentVolumeBlock {
			return []string{
				"spec.volumeMode: nodes give pods no block devices, and a pod with a claim to this one waits; make a file system " +
					"on it, mount it, and use Filesystem",
			}
		}
		return nil
	}
	for _, source := range sources(s) {
		if source.set {
			return []string{fmt.Sprintf(
				"spec.%s: nodes mount PersistentVolumes of the kinds hostPath and local; a pod with a claim to this one waits",
				source.name,
			)}
		}
	}
	return nil
}

func warningsOf(v *corev1.PersistentVolume) (out []string) {
	for _, a := range []struct{ key, why string }{
		{corev1.BetaStorageClassAnnotation, `deprecated since v1.8; use "storageClassName" attribute instead`},
		{corev1.MountOptionAnnotation, `deprecated since v1.31; use "mountOptions" attribute instead`},
	} {
		if _, there := v.Annotations[a.key]; there {
			out = append(out, fmt.Sprintf("%s: %s", field.NewPath("metadata", "annotations").Key(a.key), a.why))
		}
	}
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		out = append(
			out,
			"spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach "+
				"is to use dynamic provisioning.",
		)
	}
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
		terms := field.NewPath("spec", "nodeAffinity", "required", "nodeSelectorTerms")
		for i, term := range a.Required.NodeSelectorTerms {
			for j, e := range term.MatchExpressions {
				if why, old := warnings.RenamedLabel(e.Key); old {
					out = append(out, fmt.Sprintf(
						"%s: %s is %s", terms.Index(i).Child("matchExpressions").Index(j).Child("key"), e.Key, why,
					))
				}
			}
		}
	}
	for _, o := range []struct {
		set       bool
		name, why string
	}{
		{v.Spec.CephFS != nil, "cephfs", "deprecated in v1.28, non-functional in v1.31+"},
		{v.Spec.PhotonPersistentDisk != nil, "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"},
		{v.Spec.ScaleIO != nil, "scaleIO", "deprecated in v1.16, non-functional in v1.22+"},
		{v.Spec.StorageOS != nil, "storageOS", "deprecated in v1.22, non-functional in v1.25+"},
		{v.Spec.Glusterfs != nil, "glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
		{v.Spec.RBD != nil, "rbd", "deprecated in v1.28, non-functional in v1.31+"},
	} {
		if o.set {
			out = append(out, "spec."+o.name+": "+o.why)
		}
	}
	return out
}
