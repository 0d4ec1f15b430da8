package loops

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/testenv"
)

// statefulSetCluster is a control plane with what the tests ask about it, in a namespace.
type statefulSetCluster struct {
	*testenv.Env
	t         *testing.T
	namespace string
}

func (c statefulSetCluster) create(replicas int32, edits ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	c.t.Helper()
	labels := map[string]string{"app": "db"}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db", Labels: labels}, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, ServiceName: "dbs", Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{Name: "main", Image: "everynode.io/demo:v1"}}}},
	}}
	for _, e := range edits {
		e(set)
	}
	out, err := c.Client.AppsV1().StatefulSets(c.namespace).Create(c.t.Context(), set, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

func (c statefulSetCluster) patch(format string, args ...any) {
	c.t.Helper()
	patch := fmt.Sprintf(format, args...)
	if _, err := c.Client.AppsV1().StatefulSets(c.namespace).Patch(c.t.Context(), "db", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		c.t.Fatalf("patch with %s: %v", patch, err)
	}
}

func (c statefulSetCluster) setImage(version string) {
	c.t.Helper()
	c.patch(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"everynode.io/demo:%s"}]}}}}`, version)
}

// is waits until the pods, with the versions of their images, are these, and the
// status says so.
func (c statefulSetCluster) is(what, want string) (set *appsv1.StatefulSet) {
	c.t.Helper()
	c.Eventually(what, func(ctx context.Context) (err error) {
		if set, err = c.Client.AppsV1().StatefulSets(c.namespace).Get(ctx, "db", metav1.GetOptions{}); err != nil {
			return err
		}
		got, err := c.pods(ctx)
		if err != nil {
			return err
		}
		if got != want || set.Status.ObservedGeneration != set.Generation || set.Status.Replicas != *set.Spec.Replicas || set.Status.AvailableReplicas != *set.Spec.Replicas {
			return fmt.Errorf("the pods are %s, want %s; the status is %+v", got, want, set.Status)
		}
		return nil
	})
	return set
}

func (c statefulSetCluster) pods(ctx context.Context) (out string, _ error) {
	list, err := c.Client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=db"})
	if err != nil {
		return "", err
	}
	for _, p := range list.Items {
		image := p.Spec.Containers[0].Image
		out += p.Name + "/" + image[len(image)-2:] + " "
	}
	return out, nil
}

// TestStatefulSets has one control plane for all: each test has a namespace.
func TestStatefulSets(t *testing.T) {
	t.Parallel()
	e := testenv.Start(t, testenv.SimulatedNodes(2))
	for name, test := range map[string]func(statefulSetCluster){"rolling": rolling, "partition": partition, "parallel": parallel, "evicted": evicted, "scaled": scaled, "adopted": adopted, "operations": setOperations, "claims": setClaims, "halted": halted, "burst": burst} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := e.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			test(statefulSetCluster{e.For(t), t, name})
		})
	}
}

// setClaims is about the claims of pods, which stay when pods go, unless the policy says otherwise.
func setClaims(c statefulSetCluster) {
	for i := range 4 {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("claims-", i)}}
		v.Spec.StorageClassName, v.Spec.AccessModes = "claims", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/tmp"}
		if _, err := c.Client.CoreV1().PersistentVolumes().Create(c.t.Context(), v, metav1.CreateOptions{}); err != nil {
			c.t.Fatal(err)
		}
	}
	c.create(2, func(s *appsv1.StatefulSet) {
		claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
		claim.Spec.StorageClassName, claim.Spec.AccessModes = ptr.To("claims"), []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claim}
		s.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	})
	c.is("all are there", "db-0/v1 db-1/v1 ")
	first := c.claimed("each has its claim", "data-db-0 data-db-1 ")
	c.patch(`{"spec":{"replicas":1}}`)
	c.is("one goes", "db-0/v1 ")
	c.patch(`{"spec":{"replicas":2}}`)
	c.is("and comes back", "db-0/v1 db-1/v1 ")
	if again := c.claimed("to its claim", "data-db-0 data-db-1 "); again["data-db-1"] != first["data-db-1"] {
		c.t.Error("the pod that came back has another volume")
	}
	c.patch(`{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Delete","whenDeleted":"Delete"}}}`)
	c.patch(`{"spec":{"replicas":1}}`)
	c.is("one goes", "db-0/v1 ")
	c.claimed("and its claim with it", "data-db-0 ")
	c.patch(`{"spec":{"replicas":2}}`)
	c.is("a new one comes", "db-0/v1 db-1/v1 ")
	if last := c.claimed("with a new claim", "data-db-0 data-db-1 "); last["data-db-1"] == first["data-db-1"] || last["data-db-0"] != first["data-db-0"] {
		c.t.Errorf("the volumes are %v, they were %v", last, first)
	}
	if err := c.Client.AppsV1().StatefulSets(c.namespace).Delete(c.t.Context(), "db", metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.claimed("the claims go with the set", "")
}

// claimed waits until the claims are these, each bound, and returns their volumes.
func (c statefulSetCluster) claimed(what, want string) (volumes map[string]string) {
	c.t.Helper()
	c.Eventually(what, func(ctx context.Context) error {
		list, err := c.Client.CoreV1().PersistentVolumeClaims(c.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		got := ""
		volumes = map[string]string{}
		for _, claim := range list.Items {
			got += claim.Name + " "
			volumes[claim.Name] = claim.Spec.VolumeName
		}
		if got != want {
			return fmt.Errorf("the claims are %s", got)
		}
		return nil
	})
	return volumes
}

func rolling(c statefulSetCluster) {
	c.create(3)
	first := c.is("all are there", "db-0/v1 db-1/v1 db-2/v1 ")
	c.setImage("v2")
	second := c.is("all are replaced", "db-0/v2 db-1/v2 db-2/v2 ")
	if second.Status.UpdateRevision == first.Status.UpdateRevision || second.Status.UpdatedReplicas != 3 {
		c.t.Errorf("the status is %+v", second.Status)
	}
	c.setImage("v1")
	if back := c.is("and back", "db-0/v1 db-1/v1 db-2/v1 "); back.Status.UpdateRevision != first.Status.UpdateRevision {
		c.t.Errorf("back is revision %s, want %s", back.Status.UpdateRevision, first.Status.UpdateRevision)
	}
	list, err := c.Client.AppsV1().ControllerRevisions(c.namespace).List(c.t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		c.t.Errorf("%d revisions, %v", len(list.Items), err)
	}
}

func partition(c statefulSetCluster) {
	c.create(3)
	c.is("all are there", "db-0/v1 db-1/v1 db-2/v1 ")
	c.patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}`)
	c.setImage("v2")
	set := c.is("the canary is there", "db-0/v1 db-1/v1 db-2/v2 ")
	if err := c.Client.CoreV1().Pods(c.namespace).Delete(c.t.Context(), "db-0", metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.is("a pod below the partition comes back as it was", "db-0/v1 db-1/v1 db-2/v2 ")
	if set.Status.CurrentRevision == set.Status.UpdateRevision {
		c.t.Errorf("the status is %+v", set.Status)
	}
	c.patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	c.is("the others follow", "db-0/v2 db-1/v2 db-2/v2 ")
}

func parallel(c statefulSetCluster) {
	c.create(4, func(s *appsv1.StatefulSet) {
		s.Spec.PodManagementPolicy, s.Spec.Ordinals = appsv1.ParallelPodManagement, &appsv1.StatefulSetOrdinals{Start: 3}
	})
	c.is("all are there", "db-3/v1 db-4/v1 db-5/v1 db-6/v1 ")
	c.patch(`{"spec":{"replicas":1}}`)
	c.is("one is left", "db-3/v1 ")
}

func evicted(c statefulSetCluster) {
	c.create(1)
	c.is("it is there", "db-0/v1 ")
	p, err := c.Client.CoreV1().Pods(c.namespace).Get(c.t.Context(), "db-0", metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	uid := p.UID
	p.ResourceVersion, p.Status.Phase, p.Status.Reason = "", corev1.PodFailed, "Evicted"
	if _, err := c.Client.CoreV1().Pods(c.namespace).UpdateStatus(c.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.Eventually("another pod has its name", func(ctx context.Context) error {
		p, err := c.Client.CoreV1().Pods(c.namespace).Get(ctx, "db-0", metav1.GetOptions{})
		if err == nil && p.UID == uid {
			err = fmt.Errorf("it is the same")
		}
		return err
	})
	c.is("it is well", "db-0/v1 ")
}

func scaled(c statefulSetCluster) {
	c.create(1)
	c.is("one", "db-0/v1 ")
	scale, err := c.Client.AppsV1().StatefulSets(c.namespace).GetScale(c.t.Context(), "db", metav1.GetOptions{})
	if err != nil || scale.Spec.Replicas != 1 || scale.Status.Selector != "app=db" {
		c.t.Fatalf("the scale is %+v, %v", scale, err)
	}
	scale.Spec.Replicas = 3
	if _, err := c.Client.AppsV1().StatefulSets(c.namespace).UpdateScale(c.t.Context(), "db", scale, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.is("three", "db-0/v1 db-1/v1 db-2/v1 ")
	c.patch(`{"spec":{"replicas":0}}`)
	c.is("none", "")
}

func adopted(c statefulSetCluster) {
	set := c.create(1)
	c.is("it is there", "db-0/v1 ")
	patch := `{"metadata":{"ownerReferences":null,"labels":{"apps.kubernetes.io/pod-index":null}}}`
	if _, err := c.Client.CoreV1().Pods(c.namespace).Patch(c.t.Context(), "db-0", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.Eventually("the orphan is adopted, and marked", func(ctx context.Context) error {
		p, err := c.Client.CoreV1().Pods(c.namespace).Get(ctx, "db-0", metav1.GetOptions{})
		if err == nil && (!metav1.IsControlledBy(p, set) || p.Labels[appsv1.PodIndexLabel] != "0" || p.Spec.Hostname != "db-0" || p.Spec.Subdomain != "dbs") {
			err = fmt.Errorf("the pod is %+v", p.ObjectMeta)
		}
		return err
	})
}

func setOperations(c statefulSetCluster) {
	c.create(1, func(s *appsv1.StatefulSet) {
		s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
	})
	c.is("it is there", "db-0/v1 ")
	sets := c.Client.AppsV1().StatefulSets(c.namespace)
	c.Eventually("a condition is added", func(ctx context.Context) error {
		s, err := sets.Get(ctx, "db", metav1.GetOptions{})
		if err != nil {
			return err
		}
		s.Status.Conditions = append(s.Status.Conditions, appsv1.StatefulSetCondition{Type: "Seen", Status: corev1.ConditionTrue})
		_, err = sets.UpdateStatus(ctx, s, metav1.UpdateOptions{})
		return err
	})
	c.patch(`{"spec":{"replicas":2}}`)
	if s := c.is("there are two", "db-0/v1 db-1/v1 "); len(s.Status.Conditions) != 1 {
		c.t.Errorf("the condition of another is gone: %+v", s.Status)
	}
	if err := sets.DeleteCollection(c.t.Context(), metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}, metav1.ListOptions{LabelSelector: "app=db"}); err != nil {
		c.t.Fatal(err)
	}
	c.Eventually("nothing is left", func(ctx context.Context) error {
		list, err := sets.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		pods, err := c.pods(ctx)
		if err == nil && len(list.Items)+len(pods) > 0 {
			err = fmt.Errorf("%d sets and the pods %s are", len(list.Items), pods)
		}
		return err
	})
}
