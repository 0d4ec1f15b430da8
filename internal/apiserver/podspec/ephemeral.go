package podspec

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
)

// ephemeralFields are what a container can have that is added to a running pod: nothing that the pod or its node would
// have to reckon with.
var ephemeralFields = sets.New("Name", "Image", "Command", "Args", "WorkingDir", "EnvFrom", "Env", "VolumeMounts",
	"VolumeDevices",
	"TerminationMessagePath", "TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce",
	"TTY")

// ephemeral checks the containers that were added to a running pod.
func (p containerChecks) ephemeral(path *field.Path) field.ErrorList {
	const why = "cannot be set for an Ephemeral Container"
	if len(p.spec.EphemeralContainers) == 0 {
		return nil
	}
	var errs field.ErrorList
	targets := sets.New[string]()
	for _, list := range [][]corev1.Container{p.spec.Containers, p.spec.InitContainers} {
		for i := range list {
			targets.Insert(list[i].Name)
		}
	}
	names := targets.Clone()
	for i := range enough.Each(p.spec.EphemeralContainers, &errs) {
		e, at := &p.spec.EphemeralContainers[i], path.Index(i)
		c := corev1.Container(e.EphemeralContainerCommon)
		errs = append(errs, p.common(&c, at)...)
		errs = append(errs, trimmedImage(&c, at)...)
		errs = append(errs, unique(names, c.Name, at)...)
		if e.TargetContainerName != "" && !targets.Has(e.TargetContainerName) {
			errs = append(errs, field.NotFound(at.Child("targetContainerName"), e.TargetContainerName))
		}
		value := reflect.ValueOf(e.EphemeralContainerCommon)
		for j := range value.NumField() {
			if name := value.Type().Field(j).Name; !ephemeralFields.Has(name) && !value.Field(j).IsZero() {
				errs = append(errs, field.Forbidden(at.Child(strings.ToLower(name[:1])+name[1:]), why))
			}
		}
		for j, m := range enough.Each(c.VolumeMounts, &errs) {
			if m.SubPath != "" {
				errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(j).Child("subPath"), why))
			}
			if m.SubPathExpr != "" {
				errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(j).Child("subPathExpr"), why))
			}
		}
	}
	return errs
}
