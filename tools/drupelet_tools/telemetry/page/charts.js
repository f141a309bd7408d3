// Charts are drawn twice: as a still picture in the page, and live in its place. Colours of axes
// follow the page's light or dark scheme.
(function () {
  var dark = matchMedia("(prefers-color-scheme: dark)");
  var specs = JSON.parse(document.getElementById("chart-specs").textContent);
  function draw() {
    var ink = dark.matches ? "#c4cad1" : "#33383d";
    var line = dark.matches ? "#4a5157" : "#d9dde1";
    var axis = { labelColor: ink, titleColor: ink, gridColor: line, domainColor: line,
      tickColor: line, labelFontSize: 12, titleFontSize: 12 };
    var config = { axis: axis, view: { stroke: null },
      legend: { labelColor: ink, titleColor: ink, labelFontSize: 12, titleFontSize: 12 } };
    Object.keys(specs).forEach(function (name) {
      var place = document.getElementById("chart-" + name);
      var narrow = place.clientWidth < 480;
      var spec = JSON.parse(JSON.stringify(specs[name]));
      (spec.layer || [spec]).forEach(function (part) {
        var own = part.encoding || {};
        [own.color, own.strokeDash].forEach(function (channel) {
          if (narrow && channel && channel.legend) { channel.legend.columns = 2; }
        });
        if (narrow && own.y && own.y.axis) { own.y.axis.labelLimit = 110; }
      });
      vegaEmbed(place, spec, { actions: false, renderer: "svg", config: config })
        .then(function () { place.dataset.drawn = "yes"; });
    });
  }
  draw();
  dark.addEventListener("change", draw);
})();
