package staticpods

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/internal/agent/document"
	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
)

// Annotations of static pods and their mirrors, as the kubelet writes them.
const (
	sourceAnnotation = "kubernetes.io/config.source"
	hashAnnotation   = "kubernetes.io/config.hash"
	mirrorAnnotation = corev1.MirrorPodAnnotationKey
	fileSource       = "file"
)

// nodeCritical is the priority of a static pod that asks for none, that of the class system-node-critical.
const nodeCritical = 2000001000

// uidLength is the length of a static pod's UID in hexadecimal digits. The API's UIDs are longer and have dashes.
const uidLength = 32

// IsUID says whether the UID is of a static pod, not of one that the API made.
func IsUID(uid types.UID) bool {
	if len(uid) != uidLength {
		return false
	}
	_, err := hex.DecodeString(string(uid))
	return err == nil
}

// Parse reads the pod that the file at path describes, for the node. The pod is complete: named NAME-NODE, with
// defaults, checked like a pod in the API, and sure to refer to no API object. The error says what is wrong with the
// file's content.
func Parse(data []byte, path, node string) (*corev1.Pod, error) {
	pod, err := decode(data)
	if err != nil {
		return nil, err
	}
	hash, err := hashOf(pod, path, node)
	if err != nil {
		return nil, err
	}
	if pod.Name == "" {
		return nil, errors.New("metadata.name: Required value: a static pod needs a name")
	}
	pod.Name += "-" + node
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	pod.UID, pod.Spec.NodeName, pod.Status = types.UID(hash), node, corev1.PodStatus{Phase: corev1.PodPending}
	pod.GenerateName, pod.ResourceVersion, pod.OwnerReferences, pod.Finalizers, pod.ManagedFields = "", "", nil, nil, nil
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	delete(pod.Annotations, mirrorAnnotation)
	pod.Annotations[sourceAnnotation], pod.Annotations[hashAnnotation] = fileSource, hash
	defaults.Set(&pod.Spec)
	defaults.SetPod(&pod.Spec)
	stay(&pod.Spec)
	if pod.Spec.Priority == nil && pod.Spec.PriorityClassName == "" {
		pod.Spec.Priority = ptr.To[int32](nodeCritical)
	}
	if err := check(pod); err != nil {
		return nil, err
	}
	return pod, nil
}

// decode reads the one pod that data holds, as YAML or JSON. Unknown fields are errors: a misspelt one would be
// missing silently.
func decode(data []byte) (*corev1.Pod, error) {
	content, err := document.Single(data)
	if errors.Is(err, document.ErrSeveral) {
		return nil, fmt.Errorf("%w; give each pod a file of its own", err)
	}
	if err != nil {
		return nil, err
	}
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(content, &kind); err != nil {
		return nil, fmt.Errorf("not YAML or JSON: %w", err)
	}
	if kind.APIVersion != "v1" || kind.Kind != "Pod" {
		return nil, fmt.Errorf("holds the kind %q of %q, and can only hold a Pod of \"v1\"", kind.Kind, kind.APIVersion)
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(content, pod); err != nil {
		return nil, fmt.Errorf("not a pod: %w", err)
	}
	return pod, nil
}

// hashOf identifies what a file of a node says. Comments and the order of fields do not count, so changing them
// restarts nothing.
func hashOf(pod *corev1.Pod, path, node string) (string, error) {
	content, err := json.Marshal(pod)
	if err != nil {
		return "", fmt.Errorf("encode the pod: %w", err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "node:%s\nfile:%s\n%s", node, path, content)
	return hex.EncodeToString(h.Sum(nil))[:uidLength], nil
}

// stay gives the pod what a pod needs that its node must not lose: no taint removes it.
func stay(spec *corev1.PodSpec) {
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	for _, t := range spec.Tolerations {
		if t.MatchToleration(&everything) {
			return
		}
	}
	spec.Tolerations = append(spec.Tolerations, everything)
}

// check refuses what the API would refuse, and what needs the API.
func check(pod *corev1.Pod) error {
	var errs field.ErrorList
	for _, message := range validation.IsDNS1123Subdomain(pod.Name) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), pod.Name, message))
	}
	for _, message := range validation.IsDNS1123Label(pod.Namespace) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "namespace"), pod.Namespace, message))
	}
	errs = append(errs, metav1validation.ValidateLabels(pod.Labels, field.NewPath("metadata", "labels"))...)
	errs = append(errs, podspec.ValidateNewPod(&pod.Spec, field.NewPath("spec"))...)
	errs = append(errs, references(&pod.Spec, field.NewPath("spec"))...)
	return errs.ToAggregate()
}
