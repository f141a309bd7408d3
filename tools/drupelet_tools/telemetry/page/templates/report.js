// What the page does beyond its still pictures and tables: a device's page opens when it is asked
// for and is found by its name, a table sorts by the head that is pressed, charts are drawn live in
// the place of their pictures, in the colours of the page's light or dark scheme.
(function () {
  function show() {
    var wanted = location.hash.slice(1);
    try { wanted = decodeURIComponent(wanted); } catch (odd) { /* an id with a bare % */ }
    var page = wanted && document.getElementById(wanted);
    if (page && page.tagName === "DETAILS") { page.open = true; page.hidden = false;
      page.scrollIntoView(); }
  }
  addEventListener("hashchange", show);
  show();

  var find = document.getElementById("find");
  if (find) {
    find.addEventListener("input", function () {
      var wanted = find.value.toLowerCase();
      document.querySelectorAll("#pages > details").forEach(function (page) {
        var told = page.firstElementChild.textContent + " " + page.id;
        page.hidden = told.toLowerCase().indexOf(wanted) < 0;
      });
    });
  }

  var natural = new Intl.Collator("en", { numeric: true });
  function value(row, at) {
    var text = row.children[at].textContent.trim();
    var told = text.match(/^[+-]?[\d,]*\.?\d+(?=$|[^\d-])/);
    return told ? parseFloat(told[0].replace(/,/g, "")) : text;
  }
  function compare(a, b) {
    return typeof a === "number" ? a - b : natural.compare(a, b);
  }
  document.querySelectorAll("thead").forEach(function (top) {
    var body = top.parentElement.tBodies[0];
    var heads = top.rows[0].children;
    if (body.rows.length < 3) { return; }
    Array.prototype.forEach.call(heads, function (head, at) {
      head.tabIndex = 0;
      head.classList.add("sorts");
      function sort() {
        var down = head.getAttribute("aria-sort") === "descending";
        Array.prototype.forEach.call(heads, function (other) {
          other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", down ? "ascending" : "descending");
        var rows = Array.prototype.filter.call(body.rows, function (row) {
          return !row.classList.contains("total"); });
        rows.sort(function (one, other) {
          var a = value(one, at), b = value(other, at);
          if (typeof a !== typeof b) { return typeof a === "number" ? -1 : 1; }
          return compare(b, a) * (down ? -1 : 1);
        });
        rows.forEach(function (row) { body.insertBefore(row, body.querySelector(".total")); });
      }
      head.addEventListener("click", sort);
      head.addEventListener("keydown", function (event) {
        if (event.key === "Enter") { sort(); } });
    });
  });

  var given = document.getElementById("chart-specs");
  if (!given || !window.vegaEmbed) { return; }
  var dark = matchMedia("(prefers-color-scheme: dark)");
  var specs = JSON.parse(given.textContent);
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
          if (narrow && channel && channel.legend) {
            channel.legend.columns = channel.legend.orient === "top" ? 1 : 2; }
        });
        if (narrow && own.y && own.y.axis) { own.y.axis.labelLimit = 110; }
        if (narrow && own.x && own.x.axis) { own.x.axis.tickCount = 4; }
      });
      vegaEmbed(place, spec, { actions: false, renderer: "svg", config: config })
        .then(function () { place.dataset.drawn = "yes"; });
    });
  }
  draw();
  dark.addEventListener("change", draw);
})();
