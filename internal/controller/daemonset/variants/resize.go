package variants

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/change/variant/resizing"
)

// Resize is how a running pod on a node becomes one of the revision by other amounts of cpu and memory. Of no way, why
// says why the pod is to be replaced; the error says that it is not known yet.
func (b *Book) Resize(uid, running types.UID, revision, node string) (way *resizing.Way, why string, err error) {
	p, template := b.Objects.Pod(running), b.Objects.Template(uid, content.TemplateOf(revision))
	if p == nil || template == nil {
		return nil, "", fmt.Errorf("the pod of node %s, or the template of revision %s, is not known", node, revision)
	}
	outcome, err := b.Outcome(uid, revision, node)
	switch {
	case err != nil:
		return nil, "", err
	case outcome == nil:
		outcome = &variant.Outcome{Template: template, Plain: true}
	case outcome.Err != nil:
		return nil, "", outcome.Err
	}
	if IsScaled(p) {
		as := *outcome
		as.Plain, as.Resources = false, variant.MarkOf(&p.ObjectMeta).Resources
		outcome = &as
	}
	way, no := resizing.Find(p, template, outcome)
	if no != nil {
		return nil, no.Error(), nil
	}
	return way, "", nil
}

// impossible is resizing.Infeasible of a pod that may be unknown.
func impossible(p *corev1.Pod) (message string, is bool) {
	if p == nil {
		return "", false
	}
	return resizing.Infeasible(p)
}

// halfWay reports whether a pod, which may be unknown, has amounts of a resize that ended half way.
func halfWay(p *corev1.Pod) bool { return p != nil && len(resizing.HalfWay(p)) > 0 }
