// Package fetchpod makes the pods that have a node pull the images of a revision before its daemon is taken away,
// where no agent of ours can be asked, and reads what came of them. Such a pod runs nothing of these images: an init
// container of our own puts a program into an empty folder that does nothing and ends, and each image runs that.
package fetchpod

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/objects/podtemplate"
)

const (
	// Label is that of each pod that fetches; its value is the UID of the daemon's pod after which the images are needed.
	Label = "everynode.io/fetches-after"
	// revisionName is the annotation with the revision whose images are pulled.
	revisionName = "everynode.io/fetches-revision"
	// MaxImages is how many images one pod pulls.
	MaxImages = 20

	// Command is the argument by which our image writes the program, followed by Program.
	Command = "fetch-program"
	// folder is where the containers have it, Program the file.
	folder  = "/everynode.io"
	Program = folder + "/end"

	volume = "program"
	// user runs all containers.
	user = 65532
	// spare is how much longer than its deadline a pod may live that nobody looks after.
	spare = time.Minute
)

// Order is what a pod is made from.
type Order struct {
	// Daemon is the pod after which the images are needed, Owner the name of its DaemonSet.
	Namespace, Owner, Daemon string
	DaemonUID                types.UID
	Node, Revision           string
	// Spec is that of the revision's pods.
	Spec *corev1.PodSpec
	// Image is that of Everynode, which has the program.
	Image string
	// Deadline is how long others wait for it.
	Deadline time.Duration
}

// Images are those that the pod pulls, each once: the first MaxImages, and left is how many more there are. An image of
// a volume is pulled as any other; that one cannot be run is said when it is there.
func Images(spec *corev1.PodSpec) (out []fetch.Image, left int) {
	out = fetch.All(spec)
	if left = len(out) - MaxImages; left > 0 {
		return out[:MaxImages], left
	}
	return out, 0
}

// LeftOut says which images of a template no pod fetches; "" if there are none.
func LeftOut(spec *corev1.PodSpec) string {
	if _, left := Images(spec); left > 0 {
		return fmt.Sprintf("pods fetch %d images of the template; the daemon's own pull the others", MaxImages)
	}
	return ""
}

// Name is that of the pod: a second try meets the first.
func (o *Order) Name() string {
	sum := sha256.Sum256([]byte(string(o.DaemonUID) + " " + o.Revision))
	return podtemplate.NamePrefix(o.Owner) + "fetch-" + hex.EncodeToString(sum[:5])
}

// Pod is bound to its node from the beginning, where the daemon is too: no scheduler pushes others out for it, and a
// node that has no room refuses it. The daemon's pod owns it, so that it goes with that one; no DaemonSet takes it for
// its own.
func (o *Order) Pod() *corev1.Pod {
	seconds := int64((o.Deadline + spare) / time.Second)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: o.Name(), Labels: map[string]string{Label: string(o.DaemonUID)},
			Annotations: map[string]string{
				revisionName: o.Revision, "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Pod", Name: o.Daemon, UID: o.DaemonUID, Controller: ptr.To(true),
			}},
		},
		Spec: corev1.PodSpec{
			NodeName: o.Node, Tolerations: o.Spec.Tolerations, RestartPolicy: corev1.RestartPolicyNever,
			ImagePullSecrets: o.Spec.ImagePullSecrets, ServiceAccountName: o.Spec.ServiceAccountName,
			AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
			ActiveDeadlineSeconds: &seconds, TerminationGracePeriodSeconds: ptr.To(int64(1)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(user)), RunAsGroup: ptr.To(int64(user)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Volumes: []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(1<<20, resource.BinarySI)},
			}}},
		},
	}
	first := container("program", o.Image, corev1.PullIfNotPresent, amounts("10m", "32Mi", "500m", "256Mi"))
	first.Args = []string{Command, Program}
	p.Spec.InitContainers = []corev1.Container{first}
	images, _ := Images(o.Spec)
	for i, of := range images {
		c := container(fmt.Sprint("image-", i), of.Image, of.Policy, amounts("1m", "4Mi", "100m", "32Mi"))
		c.Command = []string{Program}
		c.VolumeMounts[0].ReadOnly = true
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

// container keeps to the Pod Security Standard "restricted". It works in /, since its user may not enter what the image
// names.
func container(name, image string, policy corev1.PullPolicy, r corev1.ResourceRequirements) corev1.Container {
	return corev1.Container{
		Name: name, Image: image, ImagePullPolicy: policy, WorkingDir: "/", Resources: r,
		VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: folder}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

func amounts(cpu, memory, mostCPU, mostMemory string) corev1.ResourceRequirements {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}
	}
	return corev1.ResourceRequirements{Requests: list(cpu, memory), Limits: list(mostCPU, mostMemory)}
}

// Is reports whether an object is a pod that fetches.
func Is(o metav1.Object) bool {
	return o.GetLabels()[Label] != "" && o.GetAnnotations()[revisionName] != ""
}

// Of is the UID of the daemon's pod after which the images are needed, and their revision.
func Of(p *corev1.Pod) (daemon types.UID, revision string) {
	return types.UID(p.Labels[Label]), p.Annotations[revisionName]
}
