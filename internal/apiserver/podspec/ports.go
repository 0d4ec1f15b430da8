package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
)

func validatePorts(ports []corev1.ContainerPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, p := range enough.Each(ports, &errs) {
		at := path.Index(i)
		if p.Name != "" {
			if bad := check.Invalid(at.Child("name"), p.Name, utilvalidation.IsValidPortName(p.Name)); len(bad) > 0 {
				errs = append(errs, bad...)
			} else {
				errs = append(errs, unique(names, p.Name, at)...)
			}
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, portNumber(at.Child("containerPort"), p.ContainerPort)...)
		}
		if p.HostPort != 0 {
			errs = append(errs, portNumber(at.Child("hostPort"), p.HostPort)...)
		}
		errs = append(errs, Protocol(at.Child("protocol"), p.Protocol)...)
	}
	return errs
}

// Protocol checks that a port's protocol is one that can be served.
func Protocol(path *field.Path, protocol corev1.Protocol) field.ErrorList {
	return check.Chosen(path, protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

func portNumber(path *field.Path, number int32) field.ErrorList {
	return check.Invalid(path, number, utilvalidation.IsValidPortNum(int(number)))
}

// PortNumberOrName checks a reference to a port.
func PortNumberOrName(path *field.Path, port intstr.IntOrString) field.ErrorList {
	if port.Type == intstr.Int {
		return portNumber(path, port.IntVal)
	}
	return check.Invalid(path, port.StrVal, utilvalidation.IsValidPortName(port.StrVal))
}

// hostPortConflicts refuses two claims of a pod on the same port of its node.
func hostPortConflicts(containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := sets.New[string]()
	for i, c := range enough.Each(containers, &errs) {
		for j, p := range enough.Each(c.Ports, &errs) {
			if p.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			if taken.Has(key) {
				errs = append(errs, field.Duplicate(path.Index(i).Child("ports").Index(j).Child("hostPort"), key))
			}
			taken.Insert(key)
		}
	}
	return errs
}

// hostNetworkPorts checks that a container in its node's network does not ask
// for a port other than the one it listens on. A template may leave the host
// port out; pods made from it get it by default.
func hostNetworkPorts(spec *corev1.PodSpec, path *field.Path, isPod bool) field.ErrorList {
	if !spec.HostNetwork {
		return nil
	}
	var errs field.ErrorList
	for i, c := range enough.Each(spec.Containers, &errs) {
		for j, p := range enough.Each(c.Ports, &errs) {
			if p.HostPort != p.ContainerPort && (isPod || p.HostPort != 0) {
				errs = append(errs, field.Invalid(path.Index(i).Child("ports").Index(j).Child("hostPort"), p.HostPort,
					"must match `containerPort` when `hostNetwork` is true"))
			}
		}
	}
	return errs
}
