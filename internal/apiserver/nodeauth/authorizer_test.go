package nodeauth

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/everynode/everynode/internal/change/content"
)

// cluster is objects in memory. What is late shows only to those who ask for now.
type cluster struct {
	pods    []corev1.Pod
	late    []corev1.Pod
	nodes   []corev1.Node
	drivers []storagev1.CSIDriver
	// slices are the nodes of ResourceSlices, empty for all nodes.
	slices map[string]string
	// volumes are claimed by namespace/name; attached are attachments and their nodes.
	volumes, attached map[string]string
	err               error
}

func (c *cluster) PodsOnNode(_ context.Context, node string, now bool) ([]corev1.Pod, error) {
	all := c.pods
	if now {
		all = slices.Concat(c.pods, c.late)
	}
	var found []corev1.Pod
	for _, pod := range all {
		if pod.Spec.NodeName == node {
			found = append(found, pod)
		}
	}
	return found, c.err
}

func (c *cluster) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	for _, pod := range c.pods {
		if pod.Namespace == namespace && pod.Name == name {
			return &pod, c.err
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func (c *cluster) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	for _, node := range c.nodes {
		if node.Name == name {
			return &node, c.err
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

func (c *cluster) GetCSIDriver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	for _, driver := range c.drivers {
		if driver.Name == name {
			return &driver, c.err
		}
	}
	return nil, apierrors.NewNotFound(storagev1.Resource("csidrivers"), name)
}

func (c *cluster) GetVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	claim, there := c.volumes[name]
	if !there {
		return nil, apierrors.NewNotFound(volumeResource, name)
	}
	v := &corev1.PersistentVolume{}
	if namespace, name, named := strings.Cut(claim, "/"); named {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name}
	}
	return v, c.err
}

func (c *cluster) GetAttachment(_ context.Context, name string) (*storagev1.VolumeAttachment, error) {
	node, there := c.attached[name]
	if !there {
		return nil, apierrors.NewNotFound(attachmentResource, name)
	}
	return &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{NodeName: node}}, c.err
}

func (c *cluster) GetSlice(_ context.Context, name string) (*resourcev1.ResourceSlice, error) {
	node, there := c.slices[name]
	if !there {
		return nil, apierrors.NewNotFound(resourceSliceResource, name)
	}
	if node == "" {
		return &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{AllNodes: new(true)}}, c.err
	}
	return &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{NodeName: &node}}, c.err
}

func pod(node, name string, volumes ...corev1.VolumeSource) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name)},
		Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: "account-of-" + name}}
	for _, source := range volumes {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: source})
	}
	return p
}

func secretVolume(name string) corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}
}

func nodeUser(name string) user.Info {
	return &user.DefaultInfo{Name: "system:node:" + name, Groups: []string{"system:nodes", "system:authenticated"}}
}

// ask reads "verb [group/]resource[/subresource] namespace name [field=value]" with - for nothing.
func ask(who user.Info, text string) authorizer.AttributesRecord {
	words := strings.Split(text, " ")
	for i := range words {
		if words[i] == "-" {
			words[i] = ""
		}
	}
	a := authorizer.AttributesRecord{User: who, Verb: words[0], Namespace: words[2], Name: words[3], ResourceRequest: true}
	parts := strings.Split(words[1], "/")
	if strings.Contains(parts[0], ".") {
		a.APIGroup, parts = parts[0], parts[1:]
	}
	a.Resource = parts[0]
	if len(parts) > 1 {
		a.Subresource = parts[1]
	}
	if len(words) > 4 {
		selector := fields.ParseSelectorOrDie(words[4])
		a.FieldSelectorRequirements = selector.Requirements()
	}
	return a
}

func TestAuthorizer(t *testing.T) {
	mirror := pod("n1", "static", secretVolume("stolen"))
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	all := &cluster{pods: []corev1.Pod{pod("n1", "a", secretVolume("of-n1")), pod("n2", "b", secretVolume("of-n2")), pod("", "c", secretVolume("of-none")), mirror}, late: []corev1.Pod{pod("n1", "d", secretVolume("late"))},
		volumes: map[string]string{"v": "ns/claim", "other": "ns/others", "free": "", "elsewhere": "x/claim"}, attached: map[string]string{"at-n1": "n1", "at-n2": "n2"}}
	all.pods = append(all.pods, pod("n1", "claiming", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}),
		pod("n2", "others", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "others"}}))
	own := pod("n1", "own", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})
	own.Spec.Volumes[0].Name = "scratch"
	all.pods = append(all.pods, own)
	all.slices = map[string]string{"of-n1": "n1", "of-n2": "n2", "of-all": ""}
	for node, name := range map[string]string{"n1": "mine", "n2": "theirs"} {
		p := pod(node, "with-"+name)
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "a", ResourceClaimName: new(name)}, {Name: "b", ResourceClaimTemplateName: new("t")}}
		p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "b", ResourceClaimName: new("made-" + name)}}
		all.pods = append(all.pods, p)
	}
	a := NewAuthorizer(all, false)
	n1 := nodeUser("n1")
	cases := []struct {
		who  user.Info
		asks string
		deny bool
	}{
		{n1, "get secrets ns of-n1", false},
		{n1, "watch secrets ns of-n1", false},
		{n1, "get secrets other of-n1", true},
		{n1, "get secrets ns of-n2", true},
		{n1, "get secrets ns of-none", true},
		{n1, "get secrets ns stolen", true}, // a mirror pod opens nothing
		{n1, "get secrets ns late", false},  // not in the watch cache yet
		{n1, "list secrets ns -", true},
		{n1, "get secrets/status ns of-n1", true},
		{n1, "update secrets ns of-n1", true},
		{n1, "watch secrets - of-n1", true},
		{n1, "list secrets - -", true},
		{n1, "get configmaps ns of-n1", true}, // a secret's name is no config map's
		{n1, "create serviceaccounts/token ns account-of-a", false},
		{n1, "create serviceaccounts/token ns account-of-b", true},
		{n1, "get serviceaccounts ns account-of-a", false},
		{n1, "get serviceaccounts ns account-of-b", true},
		{n1, "get pods ns a", false},
		{n1, "get pods ns b", true},
		{n1, "get pods ns c", true},
		{n1, "get pods ns gone", true},
		{n1, "get pods ns static", false},
		{n1, "list pods ns a metadata.name=a", false},
		{n1, "list pods ns b metadata.name=b", true},
		{n1, "get persistentvolumeclaims ns c", true},
		{n1, "patch persistentvolumeclaims/status ns c", true},
		{n1, "get persistentvolumeclaims ns claim", false},
		{n1, "get persistentvolumeclaims x claim", true},
		{n1, "get persistentvolumeclaims ns own-scratch", false}, // of an ephemeral volume
		{n1, "get persistentvolumeclaims ns others", true},
		{n1, "list persistentvolumeclaims ns -", true},
		{n1, "update persistentvolumeclaims ns claim", true},
		{n1, "patch persistentvolumeclaims/status ns claim", false}, // the Restriction looks at it
		{n1, "patch persistentvolumeclaims/status ns others", true},
		{n1, "get persistentvolumes - v", false},
		{n1, "get persistentvolumes - other", true},
		{n1, "get persistentvolumes - free", true},
		{n1, "get persistentvolumes - elsewhere", true},
		{n1, "get persistentvolumes - gone", true},
		{n1, "update persistentvolumes - v", true},
		{n1, "get storage.k8s.io/volumeattachments - at-n1", false},
		{n1, "get storage.k8s.io/volumeattachments - at-n2", true},
		{n1, "get storage.k8s.io/volumeattachments - gone", true},
		{n1, "list storage.k8s.io/volumeattachments - -", true},
		{n1, "update storage.k8s.io/volumeattachments/status - at-n1", true},
		{n1, "get resource.k8s.io/resourceclaims ns mine", false},
		{n1, "get resource.k8s.io/resourceclaims ns made-mine", false},
		{n1, "get resource.k8s.io/resourceclaims other mine", true},
		{n1, "get resource.k8s.io/resourceclaims ns theirs", true},
		{n1, "get resource.k8s.io/resourceclaims ns made-theirs", true},
		{n1, "get resource.k8s.io/resourceclaims ns t", true},
		{n1, "list resource.k8s.io/resourceclaims ns -", true},
		{n1, "watch resource.k8s.io/resourceclaims ns mine", true},
		{n1, "update resource.k8s.io/resourceclaims/status ns mine", true},
		{n1, "create resource.k8s.io/resourceslices - -", false}, // the Restriction looks at it
		{n1, "patch resource.k8s.io/resourceslices - of-n1", false},
		{n1, "delete resource.k8s.io/resourceslices - of-n1", false},
		{n1, "get resource.k8s.io/resourceslices - of-n2", true},
		{n1, "update resource.k8s.io/resourceslices - of-all", true},
		{n1, "delete resource.k8s.io/resourceslices - gone", true},
		{n1, "list resource.k8s.io/resourceslices - - spec.nodeName=n1", false},
		{n1, "deletecollection resource.k8s.io/resourceslices - - spec.nodeName=n1,spec.driver=d", false},
		{n1, "deletecollection resource.k8s.io/resourceslices - - spec.driver=d", true},
		{n1, "watch resource.k8s.io/resourceslices - - spec.nodeName=n2", true},
		{n1, "watch resource.k8s.io/resourceslices - -", true},
		{n1, "list serviceaccounts ns -", true},
		{n1, "create serviceaccounts ns -", true},
		{n1, "list pods - - spec.nodeName=n1", false},
		{n1, "watch pods - - spec.nodeName=n1,status.phase=Running", false},
		{n1, "list pods - - spec.nodeName=n2", true},
		{n1, "list pods - - spec.nodeName!=n1", true},
		{n1, "list pods - -", true},
		{n1, "patch pods/status ns a", false}, // the Restriction looks at it
		{n1, "patch nodes/status - n1", false},
		{n1, "patch nodes/status - n2", false}, // the Restriction looks at it
		{n1, "delete nodes - n2", false},       // no role allows it
		{n1, "list nodes - -", true},
		{n1, "watch nodes - -", true},
		{n1, "watch nodes - - spec.unschedulable=false", true},
		{n1, "list network.everynode.io/nodes - -", false},
		{n1, "watch network.everynode.io/nodes - -", false},
		{n1, "get nodes - n2", true},
		{n1, "get nodes - n1", false},
		{n1, "watch nodes - n1 metadata.name=n1", false},
		{n1, "create nodes - -", false},
		{n1, "update coordination.k8s.io/leases kube-node-lease n1", false},
		{n1, "create coordination.k8s.io/leases kube-node-lease -", false},
		{n1, "update coordination.k8s.io/leases kube-node-lease n2", true},
		{n1, "list coordination.k8s.io/leases kube-node-lease -", true},
		{n1, "update coordination.k8s.io/leases kube-system n1", true},
		{n1, "get storage.k8s.io/csinodes - n1", false},
		{n1, "create storage.k8s.io/csinodes - -", false},
		{n1, "get storage.k8s.io/csinodes - n2", true},
		{n1, "update storage.k8s.io/csinodes - n2", true},
		{n1, "list storage.k8s.io/csinodes - -", true},
		{n1, "list storage.k8s.io/csidrivers - -", false},
		{n1, "list services - -", false},
		{nodeUser(""), "list services - -", true},
		{&user.DefaultInfo{Name: "jane", Groups: []string{"system:nodes"}}, "list services - -", true},
		{&user.DefaultInfo{Name: "system:node:n1"}, "get secrets ns of-n2", false}, // not in the group: the roles decide
		{&user.DefaultInfo{Name: "jane"}, "list secrets - -", false},
	}
	for _, c := range cases {
		decision, reason, err := a.Authorize(t.Context(), ask(c.who, c.asks))
		if err != nil || (decision == authorizer.DecisionDeny) != c.deny || (reason != "") && !c.deny {
			t.Errorf("%s %s: %s %q %v, want denied %v", c.who.GetName(), c.asks, decision, reason, err, c.deny)
		}
		if decision == authorizer.DecisionAllow {
			t.Errorf("%s %s: allowed; only the roles allow", c.who.GetName(), c.asks)
		}
	}
}

func TestLookupThatFailsDenies(t *testing.T) {
	all := &cluster{pods: []corev1.Pod{pod("n1", "a")}, err: errors.New("disk")}
	a := NewAuthorizer(all, false)
	for _, text := range []string{"get secrets ns s", "get pods ns a"} {
		decision, _, err := a.Authorize(t.Context(), ask(nodeUser("n1"), text))
		if decision != authorizer.DecisionDeny || err == nil {
			t.Errorf("%s: %s, %v; want a denial with an error", text, decision, err)
		}
	}
}

// A running pod that the controller points at a copy lets its node read that one, and no annotation opens anything but
// copies of what the pod's volumes name.
func TestNodeReadsWhatItsPodsArePointedAt(t *testing.T) {
	hash := strings.Repeat("b", 24)
	pointed := func(node, name, copied string) corev1.Pod {
		p := pod(node, name, secretVolume("token"))
		to := content.Pointing{Content: hash, At: time.Unix(1, 0), Volumes: []content.Pointed{{Ref: content.Ref{Kind: content.Secret, Name: "token"}, Copy: copied}}}
		text, err := to.Text()
		if err != nil {
			t.Fatal(err)
		}
		p.Annotations = map[string]string{content.LiveName: text}
		return p
	}
	mirror := pointed("n1", "static", "token-"+strings.Repeat("m", 24))
	mirror.Annotations[corev1.MirrorPodAnnotationKey] = "x"
	all := &cluster{pods: []corev1.Pod{pointed("n1", "a", "token-"+hash), pointed("n2", "b", "stolen"), mirror}}
	a := NewAuthorizer(all, false)
	for text, want := range map[string]bool{
		"get secrets ns token-" + hash:                    true,
		"watch secrets ns token-" + hash:                  true,
		"get secrets ns token":                            true,
		"get configmaps ns token-" + hash:                 false,
		"get secrets other token-" + hash:                 false,
		"get secrets ns token-" + strings.Repeat("c", 24): false,
		"get secrets ns token-" + strings.Repeat("m", 24): false,
	} {
		got, why, err := a.Authorize(t.Context(), ask(nodeUser("n1"), text))
		if err != nil || (got != authorizer.DecisionDeny) != want {
			t.Errorf("n1: %s: %v %s %v", text, got, why, err)
		}
	}
	for _, text := range []string{"get secrets ns token-" + hash, "get secrets ns stolen"} {
		if got, why, err := a.Authorize(t.Context(), ask(nodeUser("n2"), text)); err != nil || got != authorizer.DecisionDeny {
			t.Errorf("n2: %s: %v %s %v", text, got, why, err)
		}
	}
}
