package client

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/plan"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// manifests is what a file holds, as far as plans are about it.
type manifests struct {
	daemonSets []*appsv1.DaemonSet
	policies   []*v1alpha1.RolloutPolicy
	variants   []*v1alpha1.DaemonSetVariant
	startups   []*v1alpha1.NodeStartup
	// contents are what ConfigMaps and Secrets are to hold; those of a Secret are not shown.
	contents []plan.Change
	// deleted are the names of variants that are to be deleted.
	deleted []string
	ignored []string
}

// parseManifests reads one document after the other. DaemonSets and policies must not have fields that are not known.
func parseManifests(in io.Reader) (*manifests, error) {
	m := &manifests{}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(in))
	for number := 1; ; number++ {
		raw, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return m, nil
		}
		if err == nil {
			err = m.add(raw)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %s", number, oneLine(err))
		}
	}
}

func oneLine(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", " ")
	for _, noise := range []string{"error unmarshaling JSON: ", "while decoding JSON: ",
		"error converting YAML to JSON: "} {
		text = strings.ReplaceAll(text, noise, "")
	}
	return text
}

func (m *manifests) add(raw []byte) error {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct{ Namespace, Name string } `json:"metadata"`
	}
	err := yaml.Unmarshal(raw, &head)
	if err != nil {
		return unreadable(raw, err)
	}
	switch head.GroupVersionKind() {
	case appsv1.SchemeGroupVersion.WithKind("DaemonSet"):
		ds := &appsv1.DaemonSet{}
		if err := yaml.UnmarshalStrict(raw, ds); err != nil {
			return fmt.Errorf("DaemonSet %s: %w", head.Metadata.Name, err)
		}
		if ds.Name == "" {
			return errors.New("a DaemonSet has no name")
		}
		ds.Status = appsv1.DaemonSetStatus{}
		m.daemonSets = append(m.daemonSets, ds)
	case v1alpha1.GroupVersion.WithKind("RolloutPolicy"):
		p := &v1alpha1.RolloutPolicy{}
		if err := yaml.UnmarshalStrict(raw, p); err != nil {
			return fmt.Errorf("RolloutPolicy %s: %w", head.Metadata.Name, err)
		}
		rolloutpolicy.SetDefaults(&p.Spec)
		m.policies = append(m.policies, p)
	case v1alpha1.GroupVersion.WithKind("DaemonSetVariant"):
		v := &v1alpha1.DaemonSetVariant{}
		err := yaml.UnmarshalStrict(raw, v)
		if err == nil {
			err = variant.Validate(v).ToAggregate()
		}
		if err != nil {
			return fmt.Errorf("DaemonSetVariant %s: %w", head.Metadata.Name, err)
		}
		m.variants = append(m.variants, v)
	case v1alpha1.GroupVersion.WithKind("NodeStartup"):
		return m.addStartup(raw, head.Metadata.Name)
	case corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Secret"):
		return m.addContent(raw, head.Kind, head.Metadata.Name)
	default:
		if head.Kind != "" || head.Metadata.Name != "" {
			m.ignored = append(m.ignored, strings.TrimSpace(head.Kind+" "+head.Metadata.Name))
		}
	}
	return nil
}

var line = regexp.MustCompile(`line (\d+)`)

// unreadable is the error of a document that is no YAML. What it quotes may be a part of a Secret's value, so of one
// that may be meant as a Secret it says the line alone.
func unreadable(raw []byte, err error) error {
	text := bytes.ToLower(raw)
	if !bytes.Contains(text, []byte("secret")) && !bytes.Contains(text, []byte("stringdata")) {
		return err
	}
	at := line.FindString(err.Error())
	if at != "" {
		at = " at " + at
	}
	return fmt.Errorf("it cannot be read%s; what is wrong is not shown, as it may be a Secret", at)
}

// addStartup adds a NodeStartup.
func (m *manifests) addStartup(raw []byte, name string) error {
	s := &v1alpha1.NodeStartup{}
	err := yaml.UnmarshalStrict(raw, s)
	if err == nil {
		nodestartup.SetDefaults(&s.Spec)
		err = nodestartup.Validate(s).ToAggregate()
	}
	if err != nil {
		return fmt.Errorf("NodeStartup %s: %w", name, err)
	}
	m.startups = append(m.startups, s)
	return nil
}

// addContent adds a ConfigMap or a Secret.
func (m *manifests) addContent(raw []byte, kind, name string) error {
	if kind == "ConfigMap" {
		o := &corev1.ConfigMap{}
		if err := yaml.UnmarshalStrict(raw, o); err != nil {
			return fmt.Errorf("ConfigMap %s: %w", name, err)
		}
		m.contents = append(m.contents, plan.Change{Namespace: o.Namespace, New: content.OfConfigMap(o)})
		return nil
	}
	o := &corev1.Secret{}
	if err := yaml.UnmarshalStrict(raw, o); err != nil {
		// What it says may be a part of a value.
		return fmt.Errorf("Secret %s is not as the API takes one", name)
	}
	for key, value := range o.StringData {
		if o.Data == nil {
			o.Data = map[string][]byte{}
		}
		o.Data[key] = []byte(value)
	}
	m.contents = append(m.contents, plan.Change{Namespace: o.Namespace, New: content.OfSecret(o)})
	return nil
}

// withPolicies puts the policies of the file in place of those that are stored, or beside them.
func (m *manifests) withPolicies(o survey.Objects, namespace string) survey.Objects {
	o.Policies = slices.Clone(o.Policies)
	for _, p := range m.policies {
		p.Namespace = cmp.Or(p.Namespace, namespace)
		p.CreationTimestamp = metav1.NewTime(o.Now) // any that is there already is older
		o.Policies = put(o.Policies, p, func(stored *v1alpha1.RolloutPolicy) { stored.Spec = p.Spec })
	}
	return o
}

// withVariants puts the variants of the file in place of those that are stored, or beside them, and takes away those
// that are to be deleted.
func (m *manifests) withVariants(o survey.Objects, namespace string) survey.Objects {
	if len(m.variants)+len(m.deleted) == 0 {
		return o
	}
	o.Stored, o.Varied = o.Variants, true
	o.Variants = m.without(slices.Clone(o.Variants), namespace)
	for _, v := range m.variants {
		v.Namespace = cmp.Or(v.Namespace, namespace)
		v.UID = types.UID("new/" + v.Namespace + "/" + v.Name)
		o.Variants = put(o.Variants, v, func(stored *v1alpha1.DaemonSetVariant) { stored.Spec = v.Spec })
	}
	return o
}

// withStartups puts the NodeStartups of the file in place of those that are stored, or beside them.
func (m *manifests) withStartups(o survey.Objects) survey.Objects {
	o.Startups = slices.Clone(o.Startups)
	for _, s := range m.startups {
		o.Startups = put(o.Startups, s, func(stored *v1alpha1.NodeStartup) { stored.Spec = s.Spec })
	}
	return o
}

// put puts an object in place of the one of its name, which is copied and then changed, or behind all others.
func put[T interface {
	metav1.Object
	DeepCopy() T
}](all []T, one T, change func(stored T)) []T {
	at := slices.IndexFunc(all, func(have T) bool {
		return have.GetNamespace() == one.GetNamespace() && have.GetName() == one.GetName()
	})
	if at < 0 {
		return append(all, one)
	}
	all[at] = all[at].DeepCopy()
	change(all[at])
	return all
}

// varied are the variants that the plan is about.
func (m *manifests) varied(namespace string) (out []types.NamespacedName) {
	for _, v := range m.variants {
		out = append(out, types.NamespacedName{Namespace: v.Namespace, Name: v.Name})
	}
	for _, name := range m.deleted {
		out = append(out, types.NamespacedName{Namespace: namespace, Name: name})
	}
	return out
}

// varies reports whether the variant of that name chooses the DaemonSet, or did.
func varies(o *survey.Objects, name types.NamespacedName, ds *appsv1.DaemonSet) bool {
	chooses := func(v *v1alpha1.DaemonSetVariant) bool {
		return v.Namespace == name.Namespace && v.Name == name.Name && variant.Selects(v, ds)
	}
	return slices.ContainsFunc(o.Variants, chooses) || slices.ContainsFunc(o.Stored, chooses)
}
