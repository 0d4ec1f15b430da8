package webhook

import (
	"context"
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/beside/admit"
)

// stranger answers for a pod that another account makes than the DaemonSet controller's, as far as we were told. It may
// be somebody's own, so it is given no revision. Its account is noted on it where its DaemonSet follows a policy:
// whoever leads sees by that who makes the pods there.
func (s *Server) stranger(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse,
	string) {
	out := admitted()
	var pod metav1.PartialObjectMetadata
	err := json.Unmarshal(r.Object.Raw, &pod)
	owner := metav1.GetControllerOf(&pod)
	if err != nil || owner == nil {
		return out, otherAccount
	}
	is, err := s.changeOf(ctx, r.Namespace, owner)
	if err != nil || is == nil {
		return out, otherAccount
	}
	klog.FromContext(ctx).Info("A pod of a DaemonSet that follows a policy was made by another account than "+
		"--daemonset-account says", "daemonSet", klog.KObj(is.ds), "account", r.UserInfo.Username, "flag", s.cfg.Maker)
	out.Patch, err = admit.NoteMaker(pod.Annotations, r.UserInfo.Username)
	if err != nil {
		return admitted(), otherAccount
	}
	return out, otherAccount
}
