package admit

import (
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// Moves is a write that changes which nodes a DaemonSet selects. kube-controller-manager places by the newest template
// at once, in no waves, so somebody approves it first.
type Moves struct {
	// From and To are the specifications of the templates that are stored and written.
	From, To *corev1.PodSpec
	// Approved is the hash that was approved; "" if none was.
	Approved string
}

// Hash is that of the placement rules that are written. An approval names it, so it is good for the same rules whenever
// they are written, and for no others.
func (m Moves) Hash() (string, error) {
	raw, err := placement.Compile(m.To).MarshalJSON()
	if err != nil {
		return "", fmt.Errorf("write the placement rules down: %w", err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(raw)), nil
}

// Refusal says why the write is refused, and what becomes of the nodes; "" if it is not.
func (m Moves) Refusal(nodes []*corev1.Node) (string, error) {
	from, to := placement.Compile(m.From), placement.Compile(m.To)
	hash, err := m.Hash()
	if err != nil || from.Same(to) || hash == m.Approved {
		return "", err
	}
	lose, gain := 0, 0
	for _, n := range nodes {
		was, _ := from.Judge(n)
		is, _ := to.Judge(n)
		switch {
		case was != placement.ShouldNotRun && is == placement.ShouldNotRun:
			lose++
		case was != placement.ShouldRun && is == placement.ShouldRun:
			gain++
		}
	}
	return fmt.Sprintf("%d nodes would lose the daemon and %d would get it, at once, and a rollback would not undo it; "+
		"somebody who may approve rollouts approves the placement %s first", lose, gain, hash), nil
}
