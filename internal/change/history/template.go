package history

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// Patch returns the data of the revision for a template.
func Patch(template *corev1.PodTemplateSpec) ([]byte, error) {
	raw, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("encode pod template: %w", err)
	}
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil {
		return nil, fmt.Errorf("decode pod template: %w", err)
	}
	fields["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": fields}})
}

// Template returns the template that a revision holds.
func Template(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var patch struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Data.Raw, &patch); err != nil {
		return nil, fmt.Errorf("read the template of revision %s: %w", r.Name, err)
	}
	return &patch.Spec.Template, nil
}

// Digest returns the SHA-256 of the template that a revision holds, as sha256: and 64 digits.
// Templates of one digest are the same; those of one hash need not be. It is that of the data
// as Patch writes it, so it depends on neither the order nor the spelling of fields.
func Digest(r *appsv1.ControllerRevision) (string, error) {
	template, err := Template(r)
	if err != nil {
		return "", err
	}
	patch, err := Patch(template)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(patch)), nil
}

// HashOf returns the hash that pods of the revision carry: its label, or its
// name if it has none.
func HashOf(r *appsv1.ControllerRevision) string {
	if h := r.Labels[appsv1.ControllerRevisionHashLabelKey]; h != "" {
		return h
	}
	return r.Name
}

// Holds reports whether the revision holds the template, by meaning. normalize,
// which may be nil, fills a template's defaults in.
func Holds(r *appsv1.ControllerRevision, template *corev1.PodTemplateSpec, patch []byte,
	normalize func(*corev1.PodTemplateSpec)) bool {
	if bytes.Equal(r.Data.Raw, patch) {
		return true
	}
	held, err := Template(r)
	if err != nil {
		return false
	}
	if normalize != nil {
		normalize(held)
		template = template.DeepCopy()
		normalize(template)
	}
	return apiequality.Semantic.DeepEqual(held, template)
}
