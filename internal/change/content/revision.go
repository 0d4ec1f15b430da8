package content

import (
	"slices"
	"strings"
)

// RevisionLabel is the label of a pod with its whole revision. Unlike controller-revision-hash it also
// names the content. A node cannot write it.
const RevisionLabel = "everynode.io/revision"

// Revision is the name of a revision of a template's hash and a content's ID, which may be "".
func Revision(template, id string) string {
	if id == "" {
		return template
	}
	return template + "." + id
}

// IsID reports whether a text can be the ID of a content.
func IsID(text string) bool {
	return len(text) == digits && strings.Trim(text, alphabet) == ""
}

// split parts a revision. A template's hash may have dots of its own, where it is the name of a revision.
func split(revision string) (template, id string) {
	at := len(revision) - digits - 1
	if at <= 0 || revision[at] != '.' || !IsID(revision[at+1:]) {
		return revision, ""
	}
	return revision[:at], revision[at+1:]
}

// variantsMark stands before the ID of variants in the name of a revision: TEMPLATE_VARIANTS.CONTENT. No hash has it.
const variantsMark = "_"

// TemplateOf returns the template's hash of a revision.
func TemplateOf(revision string) string {
	template, _ := split(revision)
	hash, _, _ := strings.Cut(template, variantsMark)
	return hash
}

// VariantsOf returns the ID of the variants of a revision; "" if it has none.
func VariantsOf(revision string) string {
	template, _ := split(revision)
	_, id, _ := strings.Cut(template, variantsMark)
	return id
}

// Drifted stands for the variants of a pod that is not what its revision says, since its node is another now, and
// Infeasible for those of a pod that its node can never give the amounts that it was to be given as it runs.
const (
	Drifted    = "drifted"
	Infeasible = "infeasible"
)

// CanBeMade reports whether pods are made of a revision: of what pods are called that have become something else, none
// is.
func CanBeMade(revision string) bool {
	is := VariantsOf(revision)
	return is != Drifted && is != Infeasible
}

// WithVariants returns the revision with these variants in place of those that it has; with "" as their ID, without.
func WithVariants(revision, id string) string {
	if id != "" {
		id = variantsMark + id
	}
	return Revision(TemplateOf(revision)+id, IDOf(revision))
}

// WithoutContent returns the revision without the content that it has.
func WithoutContent(revision string) string {
	template, _ := split(revision)
	return template
}

// IDOf returns the content's ID of a revision; "" if it has none.
func IDOf(revision string) string {
	_, id := split(revision)
	return id
}

// IDsOf returns those of some revisions, in order and each once.
func IDsOf(revisions []string) (ids []string) {
	for _, r := range revisions {
		if id := IDOf(r); id != "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// RevisionOf returns the revision of a pod that carries the hash of a template. Of the label only what it
// says of the content counts: somebody may have given the pod the hash of an equal template.
func RevisionOf(hash string, labels map[string]string) string {
	if hash == "" {
		return ""
	}
	return Revision(hash, IDOf(labels[RevisionLabel]))
}
