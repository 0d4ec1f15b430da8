package rollout

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
)

// State is where a rollout is, for people and, as JSON, for programs. docs/rollout-reference.md
// describes it.
type State struct {
	Namespace string `json:"namespace"`
	DaemonSet string `json:"daemonSet"`
	// Phase and Message say what the rollout does, and why.
	Phase   v1alpha1.Phase `json:"phase"`
	Message string         `json:"message"`
	// StableRevision is "" until a revision was complete.
	StableRevision string `json:"stableRevision"`
	TargetRevision string `json:"targetRevision"`
	// TargetDigest is that of the target's template.
	TargetDigest string `json:"targetDigest,omitempty"`
	// Change is the number of the change under way.
	Change int64 `json:"change,omitempty"`
	// Content is the content of the target; nil where revisions are templates alone.
	Content *v1alpha1.ContentStatus `json:"content,omitempty"`
	// Images are what tags are resolved to; nil where the policy does not pin them.
	Images *v1alpha1.ImagesStatus `json:"images,omitempty"`
	// Fetch is what hinders that nodes fetch images before their turn; nil for nothing.
	Fetch *v1alpha1.FetchStatus `json:"fetch,omitempty"`
	// Step is the furthest one that has begun.
	Step        string       `json:"step,omitempty"`
	StepStarted *metav1.Time `json:"stepStarted,omitempty"`
	// Of all nodes, so many are done, failed and unavailable.
	Nodes       int32                 `json:"nodes"`
	Done        int32                 `json:"done"`
	Failed      int32                 `json:"failed"`
	Unavailable int32                 `json:"unavailable"`
	Steps       []v1alpha1.StepStatus `json:"steps"`
	// Verdicts says how many nodes there are of each.
	Verdicts        map[string]int32          `json:"verdicts"`
	FailedRevisions []v1alpha1.FailedRevision `json:"failedRevisions"`
	// Spec is what people wrote.
	Spec v1alpha1.DaemonSetRolloutSpec `json:"spec"`
	// Finished tells that nothing more will change by itself: the rollout is Complete,
	// Halted or RolledBack.
	Finished bool `json:"finished"`
}

// StateOf reads a rollout. Until the controller has seen the given generation of the
// DaemonSet, nothing is finished.
func StateOf(r *v1alpha1.DaemonSetRollout, daemonSet int64) State {
	s := &r.Status
	out := State{
		Namespace: r.Namespace, DaemonSet: r.Name, Phase: s.Phase, Message: s.Message,
		StableRevision: s.StableRevision, TargetRevision: s.TargetRevision, TargetDigest: s.TargetDigest, Step: s.Step,
		StepStarted: s.StepStarted,
		Steps:       append([]v1alpha1.StepStatus{}, s.Steps...), Verdicts: map[string]int32{},
		FailedRevisions: append([]v1alpha1.FailedRevision{}, s.FailedRevisions...), Spec: r.Spec,
		Content: s.Content, Images: s.Images, Fetch: s.Fetch, Change: s.Change,
	}
	for verdict, n := range s.Counts {
		out.Verdicts[verdict] = n
	}
	for i := range s.Steps {
		step := &s.Steps[i]
		out.Nodes, out.Done = out.Nodes+step.Nodes, out.Done+step.Done
		out.Failed, out.Unavailable = out.Failed+step.Failed, out.Unavailable+step.Unavailable
	}
	switch {
	case s.ObservedGeneration < r.Generation, s.DaemonSetGeneration != 0 && s.DaemonSetGeneration < daemonSet:
		out.Message = "the controller has not seen the last change yet"
	case s.Phase == v1alpha1.PhaseComplete, s.Phase == v1alpha1.PhaseHalted, s.Phase == v1alpha1.PhaseRolledBack:
		out.Finished = true
	}
	out.Message = About(r, out.Message)
	return out
}

// About adds to what a rollout says of itself that it says more than this program knows: a controller that is as old
// does not follow it.
func About(r *v1alpha1.DaemonSetRollout, message string) string {
	err := newer.Check(r)
	switch {
	case err == nil:
		return message
	case message == "":
		return err.Error()
	}
	return message + "; but " + err.Error()
}
