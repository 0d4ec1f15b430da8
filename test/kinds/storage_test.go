package kinds

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/volume"
)

// The kinds of storage.k8s.io are stored, changed and listed; what volumes were made by stays.
func storageKinds(t *testing.T, c cluster) {
	ctx, api := t.Context(), c.Client.StorageV1()
	class := must(api.StorageClasses().Create(ctx, &storagev1.StorageClass{ObjectMeta: named("stays"), Provisioner: "example.com/disks"}, metav1.CreateOptions{}))(t)
	if *class.ReclaimPolicy != corev1.PersistentVolumeReclaimDelete || *class.VolumeBindingMode != storagev1.VolumeBindingImmediate || class.Generation != 0 {
		t.Errorf("%+v", class)
	}
	_, err := api.StorageClasses().Patch(ctx, "stays", types.MergePatchType, []byte(`{"parameters":{"a":"b"}}`), metav1.PatchOptions{})
	refused(t, err, metav1.StatusReasonInvalid, "parameters: Invalid value: {\"a\":\"b\"}: field is immutable")
	must(api.StorageClasses().Patch(ctx, "stays", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"patched":"yes"}}}`), metav1.PatchOptions{}))(t)
	if list := must(api.StorageClasses().List(ctx, metav1.ListOptions{LabelSelector: "patched=yes"}))(t); len(list.Items) != 1 {
		t.Errorf("%d classes are listed", len(list.Items))
	}

	attributes := &storagev1.VolumeAttributesClass{ObjectMeta: named("silver"), DriverName: "example.com", Parameters: map[string]string{"iops": "1"}}
	must(api.VolumeAttributesClasses().Create(ctx, attributes, metav1.CreateOptions{}))(t)
	_, err = api.VolumeAttributesClasses().Patch(ctx, "silver", types.MergePatchType, []byte(`{"driverName":"other.com"}`), metav1.PatchOptions{})
	refused(t, err, metav1.StatusReasonInvalid, "driverName: Forbidden: updates to driverName are forbidden.")

	capacities := api.CSIStorageCapacities(c.namespace)
	room := must(capacities.Create(ctx, &storagev1.CSIStorageCapacity{ObjectMeta: named("room"), StorageClassName: "stays", Capacity: ptr.To(resource.MustParse("1Gi"))}, metav1.CreateOptions{}))(t)
	room.Capacity = ptr.To(resource.MustParse("2Gi"))
	must(capacities.Update(ctx, room, metav1.UpdateOptions{}))(t)
	_, err = capacities.Patch(ctx, "room", types.MergePatchType, []byte(`{"storageClassName":"other"}`), metav1.PatchOptions{})
	refused(t, err, metav1.StatusReasonInvalid, "storageClassName: Invalid value: \"other\": field is immutable")

	attachment := &storagev1.VolumeAttachment{ObjectMeta: named("held"), Spec: storagev1.VolumeAttachmentSpec{Attacher: "example.com", NodeName: "n",
		Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("v")}}, Status: storagev1.VolumeAttachmentStatus{Attached: true}}
	attachment = must(api.VolumeAttachments().Create(ctx, attachment, metav1.CreateOptions{}))(t)
	if attachment.Status.Attached {
		t.Error("whoever makes an attachment says that it is attached")
	}
	attachment = must(api.VolumeAttachments().Patch(ctx, "held", types.MergePatchType, []byte(`{"status":{"attached":true},"spec":{"nodeName":"m"},"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{}, "status"))(t)
	if !attachment.Status.Attached || attachment.Spec.NodeName != "n" || attachment.Labels["x"] != "" {
		t.Errorf("%+v", attachment)
	}
	_, err = api.VolumeAttachments().Patch(ctx, "held", types.MergePatchType, []byte(`{"spec":{"nodeName":"m"}}`), metav1.PatchOptions{})
	refused(t, err, metav1.StatusReasonInvalid, "field is immutable")
	for _, gone := range []error{
		api.VolumeAttachments().Delete(ctx, "held", metav1.DeleteOptions{}), capacities.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		api.VolumeAttributesClasses().Delete(ctx, "silver", metav1.DeleteOptions{}), api.StorageClasses().Delete(ctx, "stays", metav1.DeleteOptions{}),
	} {
		if gone != nil {
			t.Error(gone)
		}
	}
}

func aVolume(name, class string, edits ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: named(name)}
	v.Spec.StorageClassName = class
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/tmp/" + name}
	for _, edit := range edits {
		edit(v)
	}
	return v
}

func aClaim(name, class string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: named(name)}
	claim.Spec.StorageClassName = &class
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	return claim
}

func (c cluster) claimIs(name string, phase corev1.PersistentVolumeClaimPhase, on string) {
	c.Eventually(fmt.Sprintf("claim %s is %s", name, phase), func(ctx context.Context) error {
		claim, err := c.Client.CoreV1().PersistentVolumeClaims(c.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (claim.Status.Phase != phase || claim.Spec.VolumeName != on) {
			err = fmt.Errorf("it is %s, with volume %q", claim.Status.Phase, claim.Spec.VolumeName)
		}
		return err
	})
}

func (c cluster) volumeIs(name string, phase corev1.PersistentVolumePhase) {
	c.Eventually(fmt.Sprintf("volume %s is %s", name, phase), func(ctx context.Context) error {
		v, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && v.Status.Phase != phase {
			err = fmt.Errorf("it is %s", v.Status.Phase)
		}
		return err
	})
}

func (c cluster) gone(what string, get func(context.Context) error) {
	c.Eventually(what+" is gone", func(ctx context.Context) error {
		if err := get(ctx); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// A claim finds its volume, keeps it while it is used, and leaves it behind as its policy says.
func volumesAndClaims(t *testing.T, c cluster) {
	ctx, core := t.Context(), c.Client.CoreV1()
	volumes, claims := core.PersistentVolumes(), core.PersistentVolumeClaims(c.namespace)
	v := must(volumes.Create(ctx, aVolume("life-v", "life"), metav1.CreateOptions{}))(t)
	if v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || *v.Spec.VolumeMode != corev1.PersistentVolumeFilesystem ||
		v.Status.LastPhaseTransitionTime == nil || !slices.Contains(v.Finalizers, volume.Protection) {
		t.Errorf("%+v", v)
	}
	c.volumeIs("life-v", corev1.VolumeAvailable)
	asking := aClaim("data", "life")
	asking.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "theirs", Namespace: ptr.To("kube-system")}
	claim := must(claims.Create(ctx, asking, metav1.CreateOptions{}))(t)
	if claim.Spec.DataSourceRef != nil {
		t.Errorf("its content is to come from another namespace: %+v", claim.Spec.DataSourceRef)
	}
	if !slices.Contains(claim.Finalizers, volume.ClaimProtection) {
		t.Errorf("%+v", claim)
	}
	c.claimIs("data", corev1.ClaimBound, "life-v")
	c.volumeIs("life-v", corev1.VolumeBound)
	claim = must(claims.Get(ctx, "data", metav1.GetOptions{}))(t)
	if claim.Status.Capacity.Storage().String() != "2Gi" || len(claim.Status.AccessModes) != 1 || claim.Annotations[volume.BindCompleted] == "" {
		t.Errorf("%+v", claim)
	}
	_, err := claims.Patch(ctx, "data", types.MergePatchType, []byte(`{"spec":{"storageClassName":"other"}}`), metav1.PatchOptions{})
	refused(t, err, metav1.StatusReasonInvalid, "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims")
	_, err = claims.Patch(ctx, "data", types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"9Gi"}}}}`), metav1.PatchOptions{})
	refused(t, err, metav1.StatusReasonForbidden, "the storageclass that provisions the pvc must support resize")
	_, err = volumes.Patch(ctx, "life-v", types.MergePatchType, []byte(`{"spec":{"hostPath":{"path":"/etc"}}}`), metav1.PatchOptions{})
	refused(t, err, metav1.StatusReasonInvalid, "spec.persistentvolumesource is immutable after creation")

	// Both are used: they stay.
	pod := onePod("user")
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	pod.Spec.TerminationGracePeriodSeconds = new(int64)
	must(core.Pods(c.namespace).Create(ctx, pod, metav1.CreateOptions{}))(t)
	c.runs("user")
	if err := claims.Delete(ctx, "data", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := volumes.Delete(ctx, "life-v", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	// Another binding, from beginning to end, is time enough for mistakes.
	must(volumes.Create(ctx, aVolume("life-w", "life"), metav1.CreateOptions{}))(t)
	must(claims.Create(ctx, aClaim("more", "life"), metav1.CreateOptions{}))(t)
	c.claimIs("more", corev1.ClaimBound, "life-w")
	if claim = must(claims.Get(ctx, "data", metav1.GetOptions{}))(t); claim.DeletionTimestamp == nil {
		t.Errorf("%+v", claim)
	}
	must(volumes.Get(ctx, "life-v", metav1.GetOptions{}))(t)
	if err := core.Pods(c.namespace).Delete(ctx, "user", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	c.gone("the claim", func(ctx context.Context) error { _, err := claims.Get(ctx, "data", metav1.GetOptions{}); return err })
	c.gone("the volume", func(ctx context.Context) error { _, err := volumes.Get(ctx, "life-v", metav1.GetOptions{}); return err })

	// What nobody here deletes is not deleted.
	must(volumes.Patch(ctx, "life-w", types.MergePatchType, []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`), metav1.PatchOptions{}))(t)
	if err := claims.Delete(ctx, "more", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	c.volumeIs("life-w", corev1.VolumeFailed)
	c.Eventually("the event", func(ctx context.Context) error {
		list, err := core.Events("").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=life-w,reason=VolumeFailedDelete"})
		if err == nil && len(list.Items) == 0 {
			err = fmt.Errorf("there is none")
		}
		return err
	})
	if err := volumes.Delete(ctx, "life-w", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}

	// A claim whose volume is taken away is lost.
	must(volumes.Create(ctx, aVolume("life-x", "life"), metav1.CreateOptions{}))(t)
	must(claims.Create(ctx, aClaim("lost", "life"), metav1.CreateOptions{}))(t)
	c.claimIs("lost", corev1.ClaimBound, "life-x")
	must(volumes.Patch(ctx, "life-x", types.MergePatchType, []byte(`{"metadata":{"finalizers":null,"deletionGracePeriodSeconds":null}}`), metav1.PatchOptions{}))(t)
	c.takeAway("life-x")
	c.claimIs("lost", corev1.ClaimLost, "life-x")
}

// takeAway deletes a volume although it is bound.
func (c cluster) takeAway(name string) {
	c.Eventually("the volume is taken away", func(ctx context.Context) error {
		volumes := c.Client.CoreV1().PersistentVolumes()
		if err := volumes.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		_, err := volumes.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if _, err := volumes.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is still there: %w", err)
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

func (c cluster) runs(pod string) {
	c.Eventually("pod "+pod+" runs", func(ctx context.Context) error {
		p, err := c.Client.CoreV1().Pods(c.namespace).Get(ctx, pod, metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s: %v", p.Status.Phase, p.Status.Conditions)
		}
		return err
	})
}

// A quota limits how many claims there are, and how much they ask for.
func claimQuota(t *testing.T, c cluster) {
	ctx, core := t.Context(), c.Client.CoreV1()
	amounts := corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("1500Mi"), corev1.ResourcePersistentVolumeClaims: resource.MustParse("5")}
	must(core.ResourceQuotas(c.namespace).Create(ctx, &corev1.ResourceQuota{ObjectMeta: named("q"), Spec: corev1.ResourceQuotaSpec{Hard: amounts}}, metav1.CreateOptions{}))(t)
	used := func(want string) {
		c.Eventually("the quota says what is used", func(ctx context.Context) error {
			q, err := core.ResourceQuotas(c.namespace).Get(ctx, "q", metav1.GetOptions{})
			if got := fmt.Sprint(q.Status.Used.Name(corev1.ResourceRequestsStorage, resource.BinarySI), " ", q.Status.Used.Name(corev1.ResourcePersistentVolumeClaims, resource.DecimalSI)); err == nil && got != want {
				err = fmt.Errorf("it is %s", got)
			}
			return err
		})
	}
	used("0 0")
	must(core.PersistentVolumeClaims(c.namespace).Create(ctx, aClaim("first", "quota"), metav1.CreateOptions{}))(t)
	used("1Gi 1")
	_, err := core.PersistentVolumeClaims(c.namespace).Create(ctx, aClaim("second", "quota"), metav1.CreateOptions{})
	refused(t, err, metav1.StatusReasonForbidden, "exceeded quota: q, requested: requests.storage=1Gi, used: requests.storage=1Gi, limited: requests.storage=1500Mi")
	if err := core.PersistentVolumeClaims(c.namespace).Delete(ctx, "first", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	used("0 0")
}

// A claim of a class that waits gets a local volume on the node of its first pod.
func localVolumes(t *testing.T, c cluster) {
	ctx, core := t.Context(), c.Client.CoreV1()
	class := &storagev1.StorageClass{ObjectMeta: named("waits"), Provisioner: volume.NoProvisioner, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
	must(c.Client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}))(t)
	nodes := must(core.Nodes().List(ctx, metav1.ListOptions{}))(t)
	on := func(host string) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) {
			v.Spec.HostPath, v.Spec.Local = nil, &corev1.LocalVolumeSource{Path: "/mnt/disk"}
			v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{host}}}}}}}
		}
	}
	must(core.PersistentVolumes().Create(ctx, aVolume("waits-elsewhere", "waits", on("nowhere")), metav1.CreateOptions{}))(t)
	must(core.PersistentVolumeClaims(c.namespace).Create(ctx, aClaim("data", "waits"), metav1.CreateOptions{}))(t)
	pod := onePod("first")
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	must(core.Pods(c.namespace).Create(ctx, pod, metav1.CreateOptions{}))(t)
	c.Eventually("the pod says what it waits for", func(ctx context.Context) error {
		p, err := core.Pods(c.namespace).Get(ctx, "first", metav1.GetOptions{})
		if err != nil {
			return err
		}
		const text = "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
		for _, condition := range p.Status.Conditions {
			if condition.Message == text {
				return nil
			}
		}
		return fmt.Errorf("%+v", p.Status.Conditions)
	})
	c.claimIs("data", corev1.ClaimPending, "")
	must(core.PersistentVolumes().Create(ctx, aVolume("waits-here", "waits", on(nodes.Items[0].Labels[corev1.LabelHostname])), metav1.CreateOptions{}))(t)
	c.claimIs("data", corev1.ClaimBound, "waits-here")
	c.runs("first")
	c.volumeIs("waits-elsewhere", corev1.VolumeAvailable)

	// An ephemeral volume's claim comes and goes with its pod.
	must(core.PersistentVolumes().Create(ctx, aVolume("waits-scratch", "waits", on(nodes.Items[0].Labels[corev1.LabelHostname])), metav1.CreateOptions{}))(t)
	scratch := onePod("scratch")
	scratch.Spec.TerminationGracePeriodSeconds = new(int64)
	scratch.Spec.Volumes = []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: aClaim("", "waits").Spec}}}}}
	must(core.Pods(c.namespace).Create(ctx, scratch, metav1.CreateOptions{}))(t)
	c.runs("scratch")
	c.claimIs("scratch-s", corev1.ClaimBound, "waits-scratch")
	if err := core.Pods(c.namespace).Delete(ctx, "scratch", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	c.gone("the claim of the ephemeral volume", func(ctx context.Context) error {
		_, err := core.PersistentVolumeClaims(c.namespace).Get(ctx, "scratch-s", metav1.GetOptions{})
		return err
	})
	c.volumeIs("waits-scratch", corev1.VolumeReleased)

	told := &warned{}
	config := restclient.CopyConfig(c.Config)
	config.WarningHandlerWithContext = told
	client := must(kubernetes.NewForConfig(config))(t)
	far := aVolume("waits-far", "waits", func(v *corev1.PersistentVolume) {
		v.Spec.HostPath, v.Spec.NFS = nil, &corev1.NFSVolumeSource{Server: "s", Path: "/"}
	})
	must(client.CoreV1().PersistentVolumes().Create(ctx, far, metav1.CreateOptions{}))(t)
	if want := []string{"spec.nfs: nodes mount PersistentVolumes of the kinds hostPath and local; a pod with a claim to this one waits"}; !slices.Equal(told.texts, want) {
		t.Errorf("the warnings are %q", told.texts)
	}

	// No node gives pods devices: who makes such a volume or claim is told.
	told.texts = nil
	device := func(mode **corev1.PersistentVolumeMode) { *mode = ptr.To(corev1.PersistentVolumeBlock) }
	disk, wish := aVolume("disk", "local", func(v *corev1.PersistentVolume) { device(&v.Spec.VolumeMode) }), aClaim("disk", "local")
	device(&wish.Spec.VolumeMode)
	must(client.CoreV1().PersistentVolumes().Create(ctx, disk, dryRun))(t)
	must(client.CoreV1().PersistentVolumeClaims(c.namespace).Create(ctx, wish, dryRun))(t)
	if want := []string{
		"spec.volumeMode: nodes give pods no block devices, and a pod with a claim to this one waits; make a file system on it, mount it, and use Filesystem",
		"spec.volumeMode: nodes give pods no block devices, and a pod with this claim waits; use Filesystem",
	}; !slices.Equal(told.texts, want) {
		t.Errorf("the warnings are %q", told.texts)
	}

	// What no node mounts is told with the answer, of a template as of a pod.
	told.texts = nil
	waits := onePod("waits-for-ever")
	waits.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}}}}
	must(client.CoreV1().Pods(c.namespace).Create(ctx, waits, dryRun))(t)
	must(client.CoreV1().PodTemplates(c.namespace).Create(ctx, &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}, Template: corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: waits.Spec}}, dryRun))(t)
	const why = "volumes[0].nfs: nodes mount no volumes of this kind, and a pod with one waits; use a storage driver (csi), or mount it on the machines and use hostPath"
	if want := []string{"spec." + why, "template.spec." + why}; !slices.Equal(told.texts, want) {
		t.Errorf("the warnings are %q", told.texts)
	}
}
