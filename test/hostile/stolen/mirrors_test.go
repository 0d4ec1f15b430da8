package stolen

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// mirrorAbout is a mirror pod that is wrong in one way.
func (y *yard) mirrorAbout(about string) *corev1.Pod {
	_, what, _ := strings.Cut(about, ": ")
	p := y.mirror("yard-1", "yard-mir")
	volume := func(s corev1.VolumeSource) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: s})
	}
	c := &p.Spec.Containers[0]
	owner := &p.OwnerReferences[0]
	set := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "ds", UID: "22222222-2222-2222-2222-222222222222"}
	switch what {
	case "account default":
		p.Spec.ServiceAccountName = "default"
	case "account of nobody":
		p.Spec.ServiceAccountName = "nobody"
	case "deprecated account field":
		p.Spec.DeprecatedServiceAccount = "default"
	case "csi with secret":
		volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "yard.example.com", NodePublishSecretRef: &corev1.LocalObjectReference{Name: "sec-other"}}})
	case "emptyDir":
		volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	case "env file":
		c.Env = []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{VolumeName: "v", Path: "p", Key: "k"}}}}
	case "ephemeral":
		volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claimSpec()}}})
	case "existing name":
		p.Name = "own"
	case "finalizer":
		p.Finalizers = []string{"yard.example.com/wait"}
	case "flex with secret":
		volume(corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "example.com/flex", SecretRef: &corev1.LocalObjectReference{Name: "sec-other"}}})
	case "host network":
		p.Spec.HostNetwork = true
	case "init env secret":
		p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "i", Env: []corev1.EnvVar{envFrom("sec-other")}}}
	case "no annotation":
		p.Annotations = nil
	case "on no node":
		p.Spec.NodeName = ""
	case "optional secret volume":
		volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "sec-other", Optional: new(true)}})
	case "owner DaemonSet as well", "two owners":
		p.OwnerReferences = append(p.OwnerReferences, set)
	case "owner kind Node named own, uid of the DaemonSet":
		owner.UID = set.UID
	case "owner name of node 2, uid own":
		owner.Name = "yard-2"
	case "owner no uid":
		owner.UID = ""
	case "owner node 2":
		owner.Name, owner.UID = "yard-2", types.UID(y.uids["Node/yard-2"])
	case "projected trust bundle":
		volume(projected(corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Name: new("b"), Path: "p"}}))
	case "runtime class":
		p.Spec.RuntimeClassName = new("x")
	case "with a ready status":
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	case "privileged in a restricted namespace":
		p.Namespace = "yard-r"
		p.Spec.HostNetwork = true
		c.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	}
	return p
}

func claimSpec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: amount("1Gi")}}}
}
