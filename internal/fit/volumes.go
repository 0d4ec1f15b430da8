package fit

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/volume"
)

// What a node is reported with that cannot have a pod because of its volumes.
const (
	TextVolumeNode  = "node(s) didn't match PersistentVolume's node affinity"
	TextNoVolume    = "node(s) didn't find available persistent volumes to bind"
	TextVolumeGone  = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
	TextClaimShared = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
	// TextUnbound is about the pod, whatever the node.
	TextUnbound = "pod has unbound immediate PersistentVolumeClaims"
)

// claim is one of a pod's claims.
type claim struct {
	name string
	// own says that it was made for an ephemeral volume of the pod.
	own bool
}

func claims(object *corev1.Pod) (out []claim) {
	for i := range object.Spec.Volumes {
		v := &object.Spec.Volumes[i]
		if name := volume.ClaimName(object.Name, v); name != "" {
			out = append(out, claim{name, v.Ephemeral != nil})
		}
	}
	return out
}

// ClaimKeys are the pod's claims, as namespace/name.
func (p *Pod) ClaimKeys() (out []string) {
	for _, c := range p.claims {
		out = append(out, p.Namespace+"/"+c.name)
	}
	return out
}

// ClaimUse is a claim that is to get its volume because a pod that uses it gets its node.
type ClaimUse struct {
	Claim *corev1.PersistentVolumeClaim
	// Volume is the one that it gets; nil if somebody is to make one.
	Volume *corev1.PersistentVolume
}

// pod's volumes, as the question sees them.
type claimed struct {
	// problem is why the pod fits nowhere as its claims are.
	problem string
	bound   []*corev1.PersistentVolumeClaim
	open    []open
	// alone are claims that no other pod may use.
	alone []string
}

// open is a claim that gets its volume with the pod's node. What is the same for all nodes is found out once.
type open struct {
	*corev1.PersistentVolumeClaim
	key  string
	want volume.Wanted
	// kept is the volume that is kept for it; nil for none. Otherwise wide are those that it may get and that are not for one host alone, the
	// best first.
	kept *corev1.PersistentVolume
	wide []*corev1.PersistentVolume
}

// Unbound says why the pod fits on no node whatever, because of its claims; "" if that is not so.
func (q *Question) Unbound() string {
	if problem := q.claims().problem; problem != "" {
		return problem
	}
	if asked := q.devices(); asked != nil {
		return asked.Problem()
	}
	return ""
}

func (q *Question) claims() *claimed {
	if q.claimed == nil {
		q.claimed = q.cluster.storage.look(q.pod)
	}
	return q.claimed
}

// look sorts a pod's claims by what is known of them.
func (s *storage) look(pod *Pod) *claimed {
	out := &claimed{}
	if s == nil {
		return out
	}
	waits := false
	for _, wanted := range pod.claims {
		key := pod.Namespace + "/" + wanted.name
		c := s.claims[key]
		if problem := unusable(pod, wanted, c); problem != "" {
			return &claimed{problem: problem}
		}
		if slices.Contains(c.Spec.AccessModes, corev1.ReadWriteOncePod) {
			out.alone = append(out.alone, key)
		}
		switch {
		case volume.Bound(c):
			out.bound = append(out.bound, c)
		case c.Spec.VolumeName == "" && volume.Waits(s.classes[volume.ClaimClass(c)]):
			out.open = append(out.open, s.open(c))
		default:
			waits = true
		}
	}
	if waits {
		out.problem = TextUnbound
	}
	return out
}

func (s *storage) open(c *corev1.PersistentVolumeClaim) open {
	out := open{PersistentVolumeClaim: c, key: c.Namespace + "/" + c.Name, want: volume.Want(c)}
	if out.kept = out.want.Reserved(listed(s.reserved[out.key])); out.kept == nil {
		out.wide = out.want.Ranked(listed(s.free[pool{volume.ClaimClass(c), ""}]))
	}
	return out
}

// unusable says why a claim is of no use to a pod.
func unusable(pod *Pod, wanted claim, c *corev1.PersistentVolumeClaim) string {
	switch {
	case c == nil && wanted.own:
		return fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", wanted.name)
	case c == nil:
		return fmt.Sprintf("persistentvolumeclaim %q not found", wanted.name)
	case wanted.own && !metav1.IsControlledBy(c, &metav1.ObjectMeta{UID: pod.UID}):
		return fmt.Sprintf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", c.Namespace, c.Name, pod.Namespace, pod.Name)
	case c.Status.Phase == corev1.ClaimLost:
		return fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", c.Name, c.Spec.VolumeName)
	case c.DeletionTimestamp != nil:
		return fmt.Sprintf("persistentvolumeclaim %q is being deleted", c.Name)
	}
	return ""
}

// checkVolumes: volumes that are bound must be in reach of the node, and for each claim that waits for the pod there must be one, or
// somebody who makes one there.
func checkVolumes(q *Question, node *trialNode) []Reason {
	if len(q.pod.claims) == 0 || q.cluster.storage == nil {
		return nil
	}
	c := q.claims()
	if c.problem != "" {
		return fails(Volumes, c.problem, "", true)
	}
	s := q.cluster.storage
	for _, key := range c.alone {
		uses := func(p *Pod) bool { return slices.Contains(p.ClaimKeys(), key) }
		if s.users[key]+node.difference(uses) > 0 {
			return fails(Volumes, TextClaimShared, key, !slices.ContainsFunc(podsOf(node.Node), uses))
		}
	}
	for _, bound := range c.bound {
		v := s.volumes[bound.Spec.VolumeName]
		if v == nil {
			return fails(Volumes, TextVolumeGone, bound.Spec.VolumeName, true)
		}
		if !volume.Reaches(v, node.Name, node.Labels) {
			return fails(Volumes, TextVolumeNode, v.Name, true)
		}
	}
	if _, missing := s.choose(c, node.Node); missing != "" {
		return fails(Volumes, TextNoVolume, missing, true)
	}
	return nil
}

func podsOf(node *Node) (out []*Pod) {
	for _, p := range node.Pods {
		out = append(out, p)
	}
	return out
}

// Uses returns which volumes the pod's claims are to get if it gets the node, which it fits; none if they all have theirs.
func (q *Question) Uses(node *Node) []ClaimUse {
	if q.cluster.storage == nil {
		return nil
	}
	uses, _ := q.cluster.storage.choose(q.claims(), node)
	return uses
}

// storage is what a cluster knows of claims and volumes.
type storage struct {
	claims  map[string]*corev1.PersistentVolumeClaim // by namespace/name
	volumes map[string]*corev1.PersistentVolume
	classes map[string]*storagev1.StorageClass
	// free are the volumes that nobody has, by class and the only host that they are good for. reserved are those that name a claim.
	free     map[pool]map[string]*corev1.PersistentVolume
	reserved map[string]map[string]*corev1.PersistentVolume
	// promised are volumes that were given to a claim, which the API does not show yet: by name, the claim.
	promised map[string]string
	// users counts the pods with a node by the claims they use.
	users map[string]int
}

type pool struct{ class, host string }

// FollowVolumes has the rules look at the claims of pods. Who does not tell the cluster of claims and volumes must not call it.
func (c *Cluster) FollowVolumes() {
	c.storage = &storage{
		claims: map[string]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{}, classes: map[string]*storagev1.StorageClass{},
		free: map[pool]map[string]*corev1.PersistentVolume{}, reserved: map[string]map[string]*corev1.PersistentVolume{},
		promised: map[string]string{}, users: map[string]int{},
	}
}

// SetClaim takes over the latest object of a claim.
func (c *Cluster) SetClaim(object *corev1.PersistentVolumeClaim) {
	c.storage.claims[object.Namespace+"/"+object.Name] = object
}

// DeleteClaim forgets a claim.
func (c *Cluster) DeleteClaim(namespace, name string) { delete(c.storage.claims, namespace+"/"+name) }

// SetClass takes over the latest object of a class.
func (c *Cluster) SetClass(object *storagev1.StorageClass) { c.storage.classes[object.Name] = object }

// DeleteClass forgets a class.
func (c *Cluster) DeleteClass(name string) { delete(c.storage.classes, name) }

// SetVolume takes over the latest object of a volume.
func (c *Cluster) SetVolume(object *corev1.PersistentVolume) {
	s := c.storage
	s.forget(object.Name)
	s.volumes[object.Name] = object
	if object.Spec.ClaimRef != nil {
		delete(s.promised, object.Name)
	}
	s.index(object, true)
}

// DeleteVolume forgets a volume.
func (c *Cluster) DeleteVolume(name string) {
	c.storage.forget(name)
	delete(c.storage.promised, name)
}

func (s *storage) forget(name string) {
	if v := s.volumes[name]; v != nil {
		s.index(v, false)
		delete(s.volumes, name)
	}
}

// Promise gives a volume to a claim before the API shows it.
func (c *Cluster) Promise(name, claimKey string) { c.storage.promised[name] = claimKey }

// TakeBack takes back what Promise gave and the API does not show.
func (c *Cluster) TakeBack(name, claimKey string) {
	if c.storage.promised[name] == claimKey {
		delete(c.storage.promised, name)
	}
}

// OnlyHost is the host that a volume is good for alone, "" if there are several.
func (c *Cluster) OnlyHost(name string) string {
	if v := c.storage.volumes[name]; v != nil {
		return volume.OnlyHost(v)
	}
	return ""
}

func (s *storage) index(v *corev1.PersistentVolume, add bool) {
	if ref := v.Spec.ClaimRef; ref != nil {
		change(s.reserved, ref.Namespace+"/"+ref.Name, v, add)
		return
	}
	change(s.free, pool{volume.Class(v), volume.OnlyHost(v)}, v, add)
}

func change[K comparable](of map[K]map[string]*corev1.PersistentVolume, key K, v *corev1.PersistentVolume, add bool) {
	if add {
		if of[key] == nil {
			of[key] = map[string]*corev1.PersistentVolume{}
		}
		of[key][v.Name] = v
		return
	}
	if delete(of[key], v.Name); len(of[key]) == 0 {
		delete(of, key)
	}
}

// choose finds volumes for the claims on a node, each for one claim; missing is a claim that gets none.
func (s *storage) choose(of *claimed, node *Node) (uses []ClaimUse, missing string) {
	if len(of.open) == 0 {
		return nil, ""
	}
	taken := map[string]bool{}
	for _, c := range of.open {
		v, found := s.chooseOne(c, node, taken)
		if !found {
			return nil, c.Name
		}
		if v != nil {
			taken[v.Name] = true
		}
		uses = append(uses, ClaimUse{c.PersistentVolumeClaim, v})
	}
	return uses, ""
}

// chooseOne finds the volume for one claim. That there is none and found is true says that somebody makes one.
func (s *storage) chooseOne(c open, node *Node, taken map[string]bool) (v *corev1.PersistentVolume, found bool) {
	if selected, is := c.Annotations[volume.SelectedNode]; is && selected != node.Name {
		return nil, false
	}
	if c.kept != nil {
		return c.kept, volume.Reaches(c.kept, node.Name, node.Labels)
	}
	mine := func(v *corev1.PersistentVolume) bool {
		other, promised := s.promised[v.Name]
		return !taken[v.Name] && (!promised || other == c.key) && volume.Reaches(v, node.Name, node.Labels)
	}
	class := volume.ClaimClass(c.PersistentVolumeClaim)
	var candidates []*corev1.PersistentVolume
	if host := node.Labels[corev1.LabelHostname]; host != "" {
		candidates = listed(s.free[pool{class, host}])
	}
	if i := slices.IndexFunc(c.wide, mine); i >= 0 {
		candidates = append(candidates, c.wide[i])
	}
	if best := c.want.Best(candidates, mine); best != nil {
		return best, true
	}
	return nil, s.isMade(class, node)
}

// isMade says whether somebody makes volumes of a class that the node can use.
func (s *storage) isMade(name string, node *Node) bool {
	class := s.classes[name]
	if class == nil || class.Provisioner == volume.NoProvisioner {
		return false
	}
	return len(class.AllowedTopologies) == 0 || slices.ContainsFunc(class.AllowedTopologies, func(t corev1.TopologySelectorTerm) bool {
		for _, r := range t.MatchLabelExpressions {
			if value, there := node.Labels[r.Key]; !there || !slices.Contains(r.Values, value) {
				return false
			}
		}
		return true
	})
}

func listed(volumes map[string]*corev1.PersistentVolume) []*corev1.PersistentVolume {
	out := make([]*corev1.PersistentVolume, 0, len(volumes))
	for _, v := range volumes {
		out = append(out, v)
	}
	return out
}

// countClaims notes that a pod with a node uses its claims, or does no longer.
func (s *storage) countClaims(pod *Pod, by int) {
	if s == nil {
		return
	}
	for _, key := range pod.ClaimKeys() {
		if s.users[key] += by; s.users[key] == 0 {
			delete(s.users, key)
		}
	}
}
