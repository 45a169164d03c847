package web

// Route is what tests may know of a route.
type Route struct {
	Method, Path, Name, About string
	Role                      Role
	Params                    []Param
	Answer                    any
	Media                     string
}

// Param is one argument of a route.
type Param struct{ Name, In, Kind, About, Example string }

// Routes is the table of routes.
func Routes() []Route {
	var out []Route
	for _, r := range routes {
		e := Route{Method: r.method, Path: base + r.path, Name: r.name, About: r.about, Role: r.role, Answer: r.answer, Media: jsonType}
		if r.media != "" {
			e.Media = r.media
		}
		for _, p := range r.params {
			e.Params = append(e.Params, Param{p.name, p.in, p.kind, p.about, p.example})
		}
		out = append(out, e)
	}
	return out
}

// ProblemOf is what an error becomes.
var ProblemOf = problemOf

// Limits of lists and texts.
const (
	MaxRows = maxRows
	Longest = longest
	Cares   = cares
)
