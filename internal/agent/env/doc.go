// Package env computes the environment variables of a container.
//
// Inputs are the pod, the container, the addresses of the pod and of its node, and Objects: the config maps, secrets,
// services and allocatable resources that the variables refer to. The result is a list of names and values, sorted by
// name, in which each name occurs once. The order of precedence, lowest first, is: variables of services, envFrom in
// its written order, env in its written order. A value of env may refer to any variable that comes before it as
// $(NAME).
//
// The package reads nothing but its arguments and Objects. Field and Resource, the readers behind fieldRef and
// resourceFieldRef, are exported because downward API volumes show the same facts as files.
package env
