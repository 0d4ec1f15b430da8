package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DaemonSetRollout says where the change of the DaemonSet of the same name is. The
// controller makes it; people pause, approve and retry through its spec.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type DaemonSetRollout struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what people write: pause, approve, try again, abort.
	// +optional
	Spec DaemonSetRolloutSpec `json:"spec,omitempty"`
	// Status is written by the DaemonSet controller.
	// +optional
	Status DaemonSetRolloutStatus `json:"status,omitempty"`
}

// DaemonSetRolloutList is a list of DaemonSetRollouts.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type DaemonSetRolloutList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the rollouts.
	Items []DaemonSetRollout `json:"items"`
}

// DaemonSetRolloutSpec is what people may write.
type DaemonSetRolloutSpec struct {
	// Paused lets nothing new begin.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// Approved lets the step after the named one begin.
	// +optional
	Approved *StepApproval `json:"approved,omitempty"`
	// Retry tries a failed revision again whenever its count grows.
	// +optional
	Retry *Retry `json:"retry,omitempty"`
	// Abort takes all nodes back to the stable revision. It holds for as long as it names the
	// target; everynode rollout retry takes it out.
	// +optional
	Abort *Abort `json:"abort,omitempty"`
}

// Retry tries a failed revision again.
type Retry struct {
	// Revision is the hash of the failed template, status.targetRevision; for any other
	// nothing is tried.
	Revision string `json:"revision"`
	// Digest is status.targetDigest of that revision; for a template with another nothing is
	// tried.
	Digest string `json:"digest"`
	// Count is raised by one for each new try.
	Count int32 `json:"count"`
}

// Abort takes all nodes back from one revision.
type Abort struct {
	// Revision is the revision that is given up, status.targetRevision; for any other nothing
	// is aborted.
	Revision string `json:"revision"`
	// Digest is status.targetDigest of that revision; for a template with another nothing is
	// aborted.
	Digest string `json:"digest"`
}

// Phase is what a rollout does.
type Phase string

// The phases.
const (
	// PhaseComplete: every node that can has the target, and has soaked.
	PhaseComplete Phase = "Complete"
	// PhaseProgressing: nodes are being changed.
	PhaseProgressing Phase = "Progressing"
	// PhaseSoaking: the step's nodes are changed, and are being watched.
	PhaseSoaking Phase = "Soaking"
	// PhaseWaitingForApproval: the next step begins when somebody approves.
	PhaseWaitingForApproval Phase = "WaitingForApproval"
	// PhaseOutsideWindow: the next change begins in a window.
	PhaseOutsideWindow Phase = "OutsideWindow"
	// PhasePaused: somebody has stopped it, or the policy cannot be followed.
	PhasePaused Phase = "Paused"
	// PhaseHalted: the revision has failed, and its nodes stay as they are.
	PhaseHalted Phase = "Halted"
	// PhaseRolledBack: the revision has failed, and its nodes go back.
	PhaseRolledBack Phase = "RolledBack"
)

// The conditions of a rollout, for tools that wait. Their reason is the phase, but for RolloutImagesPinned.
const (
	// RolloutComplete: every node that can has the target, and has soaked.
	RolloutComplete = "Complete"
	// RolloutWaitingForApproval: the next step begins when somebody approves.
	RolloutWaitingForApproval = "WaitingForApproval"
	// RolloutWaiting: nothing new begins until somebody does something, or a window opens.
	RolloutWaiting = "Waiting"
	// RolloutFailed: the target has failed, and its nodes stay as they are or go back.
	RolloutFailed = "Failed"
	// RolloutReconciling and RolloutStalled are what kstatus, and with it Flux, goes by: the change is not over, or it
	// has failed.
	RolloutReconciling = "Reconciling"
	RolloutStalled     = "Stalled"
	// RolloutImagesPinned is there only while the policy pins images: each of the target's that has a tag has a digest.
	// It is Unknown while the first node finds them out, and False where one is taken as written.
	RolloutImagesPinned = "ImagesPinned"
)

// DaemonSetRolloutStatus is where the change is. It does not grow with the fleet.
type DaemonSetRolloutStatus struct {
	// ObservedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// DaemonSetGeneration is the generation of the DaemonSet that the status speaks of.
	// +optional
	DaemonSetGeneration int64 `json:"daemonSetGeneration,omitempty"`
	// Phase is what the rollout does: Complete, Progressing, Soaking,
	// WaitingForApproval, OutsideWindow, Paused, Halted or RolledBack.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Message says why, for people.
	// +optional
	Message string `json:"message,omitempty"`
	// StableRevision is the last revision that was complete without failing, and has run.
	// +optional
	StableRevision string `json:"stableRevision,omitempty"`
	// TargetRevision is the revision that nodes are led to.
	// +optional
	TargetRevision string `json:"targetRevision,omitempty"`
	// TargetDigest is the SHA-256 of the target's template. A revision's name has 32 bits, which
	// another template can be made to have; who approves, retries or aborts names both.
	// +optional
	TargetDigest string `json:"targetDigest,omitempty"`
	// Change is the number of the change under way. It grows whenever another revision becomes the target, and whenever
	// one that has failed is tried again. Who approves names it.
	// +optional
	Change int64 `json:"change,omitempty"`
	// Approved is the approval in the spec that was seen last, with the change that it is for.
	// +optional
	Approved *StepApproval `json:"approved,omitempty"`
	// Content is the content of the target, where it is a part of the revision.
	// +optional
	Content *ContentStatus `json:"content,omitempty"`
	// Images are what tags of images are resolved to, where the policy pins them.
	// +optional
	Images *ImagesStatus `json:"images,omitempty"`
	// Fetch says what hinders that nodes have the images before their daemon is taken away, where the policy wants that.
	// +optional
	Fetch *FetchStatus `json:"fetch,omitempty"`
	// Policy is the policy that the changes follow, or followed last.
	// +optional
	Policy *FollowedPolicy `json:"policy,omitempty"`
	// FailedRevisions are the last ten that failed, the newest last.
	// +optional
	// +listType=atomic
	FailedRevisions []FailedRevision `json:"failedRevisions,omitempty"`
	// EarlierFailures are up to 200 revisions that failed before those, the newest last.
	// They are not tried again by themselves either.
	// +optional
	// +listType=atomic
	EarlierFailures []string `json:"earlierFailures,omitempty"`
	// ForgottenFailures is how many more failed before those. They are not remembered: one of
	// them would go out again as a new revision does, step by step.
	// +optional
	ForgottenFailures int32 `json:"forgottenFailures,omitempty"`
	// Step is the name of the furthest step that has begun.
	// +optional
	Step string `json:"step,omitempty"`
	// StepStarted is when that step began.
	// +optional
	StepStarted *metav1.Time `json:"stepStarted,omitempty"`
	// LastDeparture is when the daemon was last taken away from a node of that step, as the
	// target's placement rules want it: there is no pod to soak, so the step soaks from then.
	// +optional
	LastDeparture *metav1.Time `json:"lastDeparture,omitempty"`
	// Soaked is how long that step has soaked since the last of its nodes was changed, as the controllers that
	// watched it saw it, rounded down. The clock of the next controller may be another.
	// +optional
	Soaked *metav1.Duration `json:"soaked,omitempty"`
	// SoakedAfter is the newest time in any object of the API that was known when the last of those nodes was changed.
	// A pod that was made after it came while no controller watched, and soaks from its own time on.
	// +optional
	SoakedAfter *metav1.Time `json:"soakedAfter,omitempty"`
	// Steps are all steps of the policy, as the fleet is now.
	// +optional
	// +listType=atomic
	Steps []StepStatus `json:"steps,omitempty"`
	// Cutoffs say which nodes are in the steps that have begun, while a change is led beside another DaemonSet controller:
	// so each replica can answer for a pod by what is written.
	// +optional
	Cutoffs *Cutoffs `json:"cutoffs,omitempty"`
	// Counts says how many nodes there are of each verdict.
	// +optional
	Counts map[string]int32 `json:"counts,omitempty"`
	// Failures is the evidence against the target revision.
	// +optional
	Failures *Failures `json:"failures,omitempty"`
	// Replacing are nodes whose old daemon the rollout is about to take away, or has, and that
	// have no other yet.
	// +optional
	Replacing *Replacing `json:"replacing,omitempty"`
	// Conditions are for tools that wait.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FollowedPolicy is the policy that the changes of a DaemonSet follow.
type FollowedPolicy struct {
	// Name is the policy's.
	Name string `json:"name"`
	// UID is the policy's.
	UID types.UID `json:"uid"`
	// Approval is Manual if a wave of the policy waits for somebody.
	// +optional
	Approval Approval `json:"approval,omitempty"`
	// SpecGeneration is the generation of the rollout's spec that was seen last while the policy
	// was followed. Who lets the DaemonSet leave does so in a later one.
	// +optional
	SpecGeneration int64 `json:"specGeneration,omitempty"`
}

// Replacing says what the daemons were like that the rollout takes away, where no pod can
// say it yet. It is written with the status, and names up to 200 nodes of each change.
type Replacing struct {
	// Available are nodes whose daemon was available.
	// +optional
	// +listType=atomic
	Available []string `json:"available,omitempty"`
	// Unavailable are nodes whose daemon was not: what is broken there is no evidence.
	// +optional
	// +listType=atomic
	Unavailable []string `json:"unavailable,omitempty"`
	// Earlier are nodes whose daemon a change took before the rollout turned back, and that have had none available
	// since. On the way back they use up no limit; against that of the next change they count.
	// +optional
	// +listType=atomic
	Earlier []string `json:"earlier,omitempty"`
	// Since is when nodes began to go back to the stable template. A pod of it that was made since then,
	// and does not come up, tells of a daemon that was taken away, also where no name is kept.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Undone tells that somebody set the stable template again in the middle of a change. Its nodes go back at once:
	// they wait for no window.
	// +optional
	Undone bool `json:"undone,omitempty"`
}

// NoFetch is the message of a controller that asks no node for images.
const NoFetch = "nodes fetch no images before their turn: that needs Everynode's own API server and DaemonSet " +
	"controller, or pods that fetch them: everynode controller --fetch-image"

// Fetches reports whether the controller asks nodes for images where a policy wants that.
func (s *DaemonSetRolloutStatus) Fetches() bool { return s.Fetch == nil || s.Fetch.Message != NoFetch }

// FetchesByPods reports whether pods have nodes fetch images, and no agents of Everynode do.
func (s *DaemonSetRolloutStatus) FetchesByPods() bool { return s.Fetch != nil && s.Fetch.ByPods }

// FetchStatus says how nodes are had to fetch images, and what hinders that.
type FetchStatus struct {
	// Message says what, for people.
	// +optional
	Message string `json:"message,omitempty"`
	// ByPods tells that pods have nodes fetch images, since no agents of Everynode can be asked.
	// +optional
	ByPods bool `json:"byPods,omitempty"`
}

// Lines says for people what hinders fetching.
func (f *FetchStatus) Lines() []string {
	if f == nil || f.Message == "" {
		return nil
	}
	return []string{"fetch: " + f.Message}
}

// ImagesStatus is what the tags of images are resolved to.
type ImagesStatus struct {
	// Templates are those of which pods may be made: the stable revision's, the target's, and that of an earlier target
	// where a node may still get it.
	// +optional
	// +listType=atomic
	Templates []PinnedTemplate `json:"templates,omitempty"`
	// Message says why images are not pinned, or what they wait for; "" if they are.
	// +optional
	Message string `json:"message,omitempty"`
}

// PinnedTemplate is what the images of one template are resolved to.
type PinnedTemplate struct {
	// Template is its hash.
	Template string `json:"template"`
	// Node is the node that asked for the digests.
	Node string `json:"node"`
	// Since is when they were learned. A pod that was made after that by tag was made while nobody could say them.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Images are those with a tag, in the order of their names.
	// +listType=atomic
	Images []PinnedImage `json:"images"`
}

// known says for people since when the digests are known; "" where nobody knows.
func (t *PinnedTemplate) known() string {
	if t.Since == nil {
		return ""
	}
	return ", known since " + t.Since.UTC().Format(time.RFC3339)
}

// PinnedImage is what one image is resolved to.
type PinnedImage struct {
	// Image is the image as the template names it.
	Image string `json:"image"`
	// Digest is what the registry had for it; "" if the node knows none, and the image is taken as written.
	// +optional
	Digest string `json:"digest,omitempty"`
}

// Lines says for people which digests the images of the newest template have, which tags have moved, and what hinders
// pinning.
func (s *ImagesStatus) Lines() (out []string) {
	if s == nil {
		return nil
	}
	was := map[string]string{}
	for n, t := range s.Templates {
		for _, i := range t.Images {
			switch old := was[i.Image]; {
			case i.Digest == "":
			case old != "" && old != i.Digest:
				out = append(out, "image "+i.Image+" has moved in its registry: it was "+old+", and "+t.Node+" got "+i.Digest+
					t.known())
			case n == len(s.Templates)-1:
				out = append(out, "image "+i.Image+" is "+i.Digest+", which "+t.Node+" got")
			}
			was[i.Image] = i.Digest
		}
	}
	if s.Message != "" {
		out = append(out, "images: "+s.Message)
	}
	return out
}

// FailedRevision is a revision that is not tried again by itself.
type FailedRevision struct {
	// Revision is the hash of the template.
	Revision string `json:"revision"`
	// Why says what happened, for people.
	Why string `json:"why"`
	// Nodes are at most three on which it did.
	// +optional
	// +listType=atomic
	Nodes []string `json:"nodes,omitempty"`
	// Time is when the limit was passed.
	Time metav1.Time `json:"time"`
	// Action is what followed.
	Action FailureAction `json:"action"`
	// Retries is the last count of spec.retry that was followed.
	// +optional
	Retries int32 `json:"retries,omitempty"`
}

// StepStatus is where one step is.
type StepStatus struct {
	// Name is the wave's name, with the label's value behind a slash where the wave
	// has several steps.
	Name string `json:"name"`
	// Nodes is how many nodes the step has.
	Nodes int32 `json:"nodes"`
	// Done is how many have the target and have soaked.
	Done int32 `json:"done"`
	// Failed is on how many the target failed.
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// Unavailable is how many are without an available daemon.
	// +optional
	Unavailable int32 `json:"unavailable,omitempty"`
	// Fetching is how many are waited for to have the target's images.
	// +optional
	Fetching int32 `json:"fetching,omitempty"`
	// Fetched is how many have them and are to change.
	// +optional
	Fetched int32 `json:"fetched,omitempty"`
}

// Failures is the evidence against a revision: it stays when pods are deleted.
type Failures struct {
	// Revision is the revision that failed.
	Revision string `json:"revision"`
	// Nodes are the names of up to 200 nodes on which the revision fails.
	// +optional
	// +listType=atomic
	Nodes []string `json:"nodes,omitempty"`
	// More counts failures beyond those.
	// +optional
	More int32 `json:"more,omitempty"`
	// Since is when the revision was last tried again: what is older does not count.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// After is the newest time in any object of the API that was known then. Since may be of a clock that was ahead;
	// what an object says of a time after this one happened later all the same.
	// +optional
	After *metav1.Time `json:"after,omitempty"`
	// Deleted are up to 200 nodes that had the revision, fell out of order soon after they were given it, and were
	// deleted. They count for ten minutes after they fell, and after a start of the controller.
	// +optional
	// +listType=atomic
	Deleted []DeletedNode `json:"deleted,omitempty"`
	// OthersDeleted is how many nodes without the revision fell out of order and were deleted meanwhile.
	// +optional
	OthersDeleted int32 `json:"othersDeleted,omitempty"`
}

// DeletedNode is a node that is evidence though it was deleted.
type DeletedNode struct {
	// Name is the node's name.
	Name string `json:"name"`
	// Fault is what was wrong with it.
	// +optional
	Fault string `json:"fault,omitempty"`
	// Silent tells that it did not answer.
	// +optional
	Silent bool `json:"silent,omitempty"`
}
